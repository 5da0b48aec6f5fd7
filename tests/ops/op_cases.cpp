#include "tests/ops/op_cases.h"

#include <algorithm>
#include <cmath>

#include "common/autograd/ops/attention.h"
#include "common/autograd/ops/cross_entropy.h"
#include "common/autograd/ops/dropout.h"
#include "common/autograd/ops/embedding.h"
#include "common/autograd/ops/layernorm.h"
#include "common/autograd/ops/linear.h"
#include "common/backend/ops/activation.h"

namespace stagegpt::test {
namespace {

using Vars = std::vector<Var>;
using Ids = std::vector<Tensor>;
using Cases = std::vector<OpCase>;

constexpr double kEps = 1e-5;
// A standard deviation; some numbers are then beyond ±50.
constexpr double kLarge = 25;

// The index of the first element does not fit in 32 bits, and by default is not a multiple of four. This
// detects kernels that assume aligned blocks of four random numbers, or indices of 32 bits.
Dropout some_dropout(double p, std::int64_t first = 5) {
  return {p, {0x123456789abcdef, 3, 7}, (std::int64_t{1} << 34) + first};
}
constexpr std::int64_t kAligned = 8;  // as first element: that of a block of random numbers

void add_embedding(Cases& cases, std::string name, Shape ids, std::int32_t rows, std::int64_t positions,
                   std::int64_t C, std::int32_t range) {
  cases.push_back(
      {"embedding_" + name,
       {parameter({rows, C}), parameter({positions, C})},
       {{ids, range}},
       ids.numel(),
       [](Tape& tape, const Vars& x, const Ids& i) { return Vars{embedding(tape, i[0], x[0], x[1])}; }});
}

void add_embeddings(Cases& cases) {
  add_embedding(cases, "c192_t17", {2, 17}, 128, 17, 192, 101);
  add_embedding(cases, "repeated_ids", {4, 17}, 5, 17, 48, 5);
  add_embedding(cases, "one_id", {3, 7}, 4, 7, 20, 1);
  add_embedding(cases, "more_positions_than_tokens", {2, 5}, 101, 32, 34, 101);
  add_embedding(cases, "one_token_one_channel", {1, 1}, 3, 4, 1, 3);
  add_embedding(cases, "many_tokens", {3, 100}, 8, 100, 20, 5);  // more than the 256 threads of a GPU block
}

struct LinearCase {
  std::string name;
  Shape x;
  std::int64_t O;
  bool bias = true;
};

void add_linear(Cases& cases, const LinearCase& c) {
  const std::int64_t I = c.x[-1];
  OpCase row{
      "linear_" + c.name, {{c.x}, parameter({c.O, I}, 0.5)}, {}, std::max({I, c.O, c.x.numel() / I}), {}};
  if (c.bias) row.reals.push_back(parameter({c.O}));
  row.build = [](Tape& tape, const Vars& x, const Ids&) {
    return Vars{linear(tape, x[0], x[1], x.size() > 2 ? x[2] : Var())};
  };
  cases.push_back(std::move(row));
}

// Two linear layers with an activation between them.
struct MlpCase {
  std::string name;
  Shape x;
  std::int64_t hidden, O;
  bool bias = true;
  double x_scale = 1;
};

void add_mlp(Cases& cases, Activation activation, const MlpCase& c) {
  const std::int64_t I = c.x[-1];
  OpCase row{concat("mlp_", name_of(activation), c.name),
             {{c.x, c.x_scale}, parameter({c.hidden, I}, 0.5), parameter({c.O, c.hidden}, 0.5)},
             {},
             std::max({I, c.hidden, c.O, c.x.numel() / I}),
             {}};
  if (c.bias) row.reals.insert(row.reals.end(), {parameter({c.hidden}), parameter({c.O})});
  row.build = [=](Tape& tape, const Vars& x, const Ids&) {
    const Var none, &first = x.size() > 3 ? x[3] : none, &second = x.size() > 3 ? x[4] : none;
    return Vars{
        activation_linear(tape, linear_activation(tape, x[0], x[1], first, activation), x[2], second)};
  };
  cases.push_back(std::move(row));
}

// GEMMs with an epilogue need a multiple of eight columns.
void add_mlps(Cases& cases) {
  for (const Activation activation :
       {Activation::none, Activation::gelu_new, Activation::gelu, Activation::relu}) {
    add_mlp(cases, activation, {"", {2, 17, 48}, 101, 33});
    add_mlp(cases, activation, {"_hidden_104", {2, 17, 48}, 104, 40});
    add_mlp(cases, activation, {"_hidden_40_no_bias", {1, 3, 20}, 40, 35, false});
    add_mlp(cases, activation, {"_large", {1, 17, 20}, 72, 33, true, 20});
  }
}

void add_linears(Cases& cases) {
  add_linear(cases, {"c192_t17", {1, 17, 192}, 576});
  add_linear(cases, {"vocabulary_101", {2, 17, 48}, 101});
  add_linear(cases, {"no_bias", {2, 17, 48}, 128, false});
  add_linear(cases, {"no_bias_odd", {3, 5, 33}, 131, false});
  add_linear(cases, {"two_dimensions", {33, 20}, 34});
  add_linear(cases, {"deep_sum", {1, 13, 300}, 70});
  add_linear(cases, {"many_rows", {4, 75, 20}, 35});
  add_linear(cases, {"many_rows_264", {1, 264, 40}, 264});   // several tiles of each product
  add_linear(cases, {"many_rows_2100", {1, 2100, 16}, 24});  // sums of dw in parts
  add_linear(cases, {"rows_8300", {1, 8300, 4}, 5});  // more rows than 128 chunks of 64, in sums of columns
  // Bias gradients are computed in blocks of 256 columns, and products in blocks of 256 terms.
  for (const std::int64_t n : {257, 513}) {
    add_linear(cases, {concat("columns_", n), {1, 3, 20}, n});
    add_linear(cases, {concat("depth_", n), {1, 3, n}, 20});
  }
  add_linear(cases, {"one_row", {1, 1, 20}, 300});
  add_linear(cases, {"one_channel", {1, 7, 1}, 1});
  add_linear(cases, {"one_channel_in", {2, 3, 1}, 17});
  add_linear(cases, {"one_channel_out", {2, 3, 17}, 1});
}

// Records an activation alone. The ops in common/autograd/ops apply activations only between linear layers.
Var activation_op(Tape& tape, Var x, Activation activation) {
  Backend& be = tape.backend();
  Tensor out = be.allocate(x.value().dtype(), x.value().shape());
  be.run(ActivationForward{out, x.value(), activation});
  return tape.record("activation", {x}, out, [=, &be](const Tensor& dout, Grads g) {
    be.run(ActivationBackward{g[0], dout, x.value(), activation});
  });
}

void add_activations(Cases& cases) {
  // 33,004 elements: two parts of 16,384 elements, which threads compute, and a remainder.
  cases.push_back({"activation_relu_long", {{{4, 8251}}}, {}, 1, [](Tape& tape, const Vars& x, const Ids&) {
                     return Vars{activation_op(tape, x[0], Activation::relu)};
                   }});
  for (const Activation activation :
       {Activation::none, Activation::gelu_new, Activation::gelu, Activation::relu}) {
    for (const double scale : {1.0, kLarge}) {
      cases.push_back({concat("activation_", name_of(activation), scale == 1 ? "" : "_large"),
                       {{{3, 337}, scale}},
                       {},
                       1,
                       [=](Tape& tape, const Vars& x, const Ids&) {
                         return Vars{activation_op(tape, x[0], activation)};
                       }});
    }
  }
}

std::vector<RealInput> norm_parameters(std::int64_t C) {
  return {{{C}, 0.5, 1, true, Role::norm}, {{C}, 1, 0, true, Role::norm}};
}

void add_layernorm(Cases& cases, std::string name, RealInput x) {
  const std::int64_t C = x.shape[-1];
  OpCase row{"layernorm_" + name, norm_parameters(C), {}, std::max(C, x.shape.numel() / C), {}};
  row.reals.push_back(x);
  row.build = [](Tape& tape, const Vars& v, const Ids&) {
    return Vars{layernorm(tape, v[2], v[0], v[1], kEps)};
  };
  cases.push_back(std::move(row));
}

enum class Use { both, sum, norm };

void add_residual_layernorm(Cases& cases, std::string name, RealInput x, Use use) {
  const std::int64_t C = x.shape[-1];
  OpCase row{"residual_layernorm_" + name, norm_parameters(C), {}, std::max(C, x.shape.numel() / C), {}};
  row.reals.insert(row.reals.end(), {x, x});
  row.build = [use](Tape& tape, const Vars& v, const Ids&) {
    const auto [sum, norm] = residual_layernorm(tape, v[2], v[3], v[0], v[1], kEps);
    return use == Use::both ? Vars{sum, norm} : Vars{use == Use::sum ? sum : norm};
  };
  cases.push_back(std::move(row));
}

void add_layernorms(Cases& cases) {
  add_layernorm(cases, "c192_t17", {{2, 17, 192}});
  add_layernorm(cases, "c130", {{3, 5, 130}});
  add_layernorm(cases, "c7", {{3, 5, 7}});
  add_layernorm(cases, "c300", {{1, 5, 300}});   // more columns than the 256 threads of a GPU block
  add_layernorm(cases, "c515", {{2, 17, 515}});  // not aligned to 16 bytes: the kernel for any rows
  // Rows of two and of four warps of a GPU block, and wider ones.
  for (const std::int64_t C : {1032, 2056, 4104}) add_layernorm(cases, concat("c", C), {{1, 5, C}});
  add_layernorm(cases, "many_rows", {{3, 100, 40}});
  add_layernorm(cases, "rows_6345", {{1, 6345, 4}});  // nine more than 396 blocks of 16 rows have
  add_layernorm(cases, "one_row", {{1, 1, 101}});
  add_layernorm(cases, "two_dimensions", {{33, 20}});
  add_layernorm(cases, "large", {{1, 17, 48}, kLarge});
  add_layernorm(cases, "small", {{1, 17, 48}, 1e-3});  // the variance, 1e-6, is less than eps
  add_layernorm(cases, "shifted", {{1, 17, 48}, 1, 50});
  // The derivative with respect to x is 0, so its relative error is not defined.
  add_layernorm(cases, "one_channel", {{1, 7, 1}, 1, 0, /*differentiable=*/false});
  add_residual_layernorm(cases, "c192_t17", {{2, 17, 192}}, Use::both);
  add_residual_layernorm(cases, "c7_one_row", {{1, 1, 7}}, Use::both);
  add_residual_layernorm(cases, "c130_sum_used", {{1, 5, 130}}, Use::sum);
  add_residual_layernorm(cases, "c130_norm_used", {{1, 5, 130}}, Use::norm);
  add_residual_layernorm(cases, "large", {{1, 17, 48}, kLarge}, Use::both);
  add_residual_layernorm(cases, "many_rows", {{3, 100, 40}}, Use::both);
  add_residual_layernorm(cases, "c515", {{1, 5, 515}}, Use::both);
}

struct AttentionCase {
  std::string name;
  std::int64_t B, T, C;
  int n_head;
  double dropout = 0;
  double scale = 1;        // of the elements of qkv
  double score_scale = 1;  // times 1/√HS
  std::int64_t first = 5;  // element of the dropout sequence
};

void add_attention(Cases& cases, const AttentionCase& c) {
  cases.push_back({"attention_" + c.name,
                   {{{c.B, c.T, 3 * c.C}, c.scale}},
                   {},
                   std::max(c.T, c.C / c.n_head),
                   [n_head = c.n_head, scale = c.score_scale / std::sqrt(static_cast<double>(c.C) / c.n_head),
                    dropout = some_dropout(c.dropout, c.first)](Tape& tape, const Vars& x, const Ids&) {
                     return Vars{attention(tape, x[0], n_head, scale, dropout)};
                   }});
}

void add_attentions(Cases& cases) {
  add_attention(cases, {"c192_t17", 2, 17, 192, 3});
  add_attention(cases, {"c48_three_heads", 2, 17, 48, 3});
  add_attention(cases, {"hs20_one_head", 1, 5, 20, 1});
  add_attention(cases, {"hs34", 3, 7, 68, 2});
  add_attention(cases, {"one_token", 3, 1, 48, 3});
  add_attention(cases, {"one_channel", 2, 5, 1, 1});
  add_attention(cases, {"t47", 1, 47, 20, 1});  // around one block of 48 queries
  add_attention(cases, {"t48", 1, 48, 20, 1});
  add_attention(cases, {"t49", 1, 49, 20, 1});
  for (const std::int64_t t : {31, 32, 33, 63, 64, 65}) {  // tiles of 32 or 64 keys, and of 64 queries
    add_attention(cases, {concat("t", t), 1, t, 20, 1});
  }
  // Flash attention has kernels for up to 32, 64 and 128 channels per head.
  for (const std::int64_t hs : {31, 32, 33, 64, 65, 128, 129}) {
    add_attention(cases, {concat("hs", hs), 1, 35, 2 * hs, 2});
  }
  add_attention(cases, {"t97", 1, 97, 20, 1});  // one key more than a block of 96 on the CPU
  add_attention(cases, {"t130", 1, 130, 40, 2});
  add_attention(cases, {"t130_hs64", 1, 130, 64, 1});
  add_attention(cases, {"t70_hs100", 1, 70, 100, 1});
  add_attention(cases, {"t260_hs128", 1, 260, 128, 1});
  add_attention(cases, {"dropout_t130_hs128", 1, 130, 128, 1, 0.1});
  add_attention(cases, {"dropout_aligned_t132_hs96", 1, 132, 96, 1, 0.1, 1, 1, kAligned});
  add_attention(cases, {"many_heads", 1, 2, 270, 270});  // more than the 256 threads of a block
  add_attention(cases, {"sharp", 1, 17, 48, 3, 0, 4});   // scores with standard deviation 16
  // Most scores of rows 64, 128 and 192, the first ones of tiles, are far above the one on the diagonal.
  add_attention(cases, {"sharp_t200", 1, 200, 32, 2, 0, 4});
  add_attention(cases, {"t260_hs64", 1, 260, 64, 1});  // more than one tile of 256 queries
  add_attention(cases, {"scaled_by_a_third", 2, 17, 48, 3, 0, 1, 1.0 / 3});
  add_attention(cases, {"dropout_not_scaled", 1, 70, 48, 3, 0.2, 1, 4});  // 4/√16
  add_attention(cases, {"dropout", 2, 17, 48, 3, 0.3});
  add_attention(cases, {"dropout_t130", 1, 130, 40, 2, 0.1});
  add_attention(cases, {"dropout_batch", 2, 67, 68, 2, 0.1});
  add_attention(cases, {"dropout_aligned", 2, 68, 48, 3, 0.3, 1, 1, kAligned});
  add_attention(cases, {"dropout_aligned_t132", 1, 132, 64, 1, 0.1, 1, 1, kAligned});
  add_attention(cases, {"dropout_one_token", 3, 1, 20, 1, 0.5});
}

void add_dropouts(Cases& cases) {
  auto dropout_case = [&](std::string name, Shape shape, double p, std::int64_t first = 5) {
    cases.push_back({"dropout_" + name, {{shape}}, {}, 1, [=](Tape& tape, const Vars& x, const Ids&) {
                       return Vars{dropout(tape, x[0], some_dropout(p, first))};
                     }});
  };
  dropout_case("aligned", {2, 17, 192}, 0.1, kAligned);
  dropout_case("p10", {2, 17, 192}, 0.1);
  dropout_case("p90", {3, 5, 7}, 0.9);
  dropout_case("one_element", {1, 1, 1}, 0.5);
  for (const std::int64_t n : {1023, 1024, 1025, 2051}) dropout_case(concat("n", n), {1, n, 1}, 0.4);
}

void add_cross_entropy(Cases& cases, std::string name, Shape targets, std::int32_t V, std::int64_t padded,
                       double scale = 1) {
  cases.push_back(
      {"cross_entropy_" + name,
       {{{targets[0], targets[1], padded}, scale}},
       {{targets, V}},
       V,
       [V](Tape& tape, const Vars& x, const Ids& i) { return Vars{cross_entropy(tape, x[0], i[0], V)}; }});
}

void add_cross_entropy_loss(Cases& cases, std::string name, Shape targets, std::int32_t V,
                            std::int64_t padded, std::int64_t K, double scale = 1) {
  cases.push_back(
      {"cross_entropy_loss_" + name,
       {{{targets[0], targets[1], padded}, scale}},
       {{targets, V}},
       K,
       [V](Tape& tape, const Vars& x, const Ids& i) { return Vars{cross_entropy_loss(tape, x[0], i[0], V)}; },
       /*is_loss=*/true});
}

void add_cross_entropies(Cases& cases) {
  const auto add = [&](const char* name, Shape targets, std::int32_t V, std::int64_t padded,
                       double scale = 1) {
    add_cross_entropy(cases, name, targets, V, padded, scale);
    add_cross_entropy_loss(cases, name, targets, V, padded, V, scale);
  };
  add("vocabulary_101_of_128", {2, 17}, 101, 128);
  add("no_padding", {2, 5}, 128, 128);
  add("one_row", {1, 1}, 33, 128);
  add("two_tokens", {3, 5}, 2, 3);
  add("large", {2, 17}, 101, 128, kLarge);
  add("vocabulary_600", {2, 5}, 600, 640);
  add("vocabulary_5000", {1, 3}, 4999, 5000);  // more than 512 threads of a GPU block read at once
  add("many_rows", {1, 601}, 5, 8);            // more than these threads
  // Rows of 48 KiB in f32, as much shared memory as a GPU's block has without asking for more.
  add_cross_entropy_loss(cases, "vocabulary_12288", {1, 2}, 12288, 12288, 64);
  // Of 80 KiB: more than a block of compute capability 7.5 may have.
  add_cross_entropy_loss(cases, "vocabulary_20480", {1, 2}, 20480, 20480, 64);
  // Rows that fit in the shared memory of a GPU's block in bf16, but not in f32; rows that never fit. K is
  // not V: sums are in f32, so that in bf16 only elements are rounded.
  add_cross_entropy_loss(cases, "vocabulary_50257", {1, 2}, 50257, 50304, 64);
  add_cross_entropy_loss(cases, "vocabulary_50500", {1, 2}, 50500, 50560, 64);
}

std::vector<RealInput> chain_residual_inputs() {
  std::vector<RealInput> inputs = {{{2, 5, 20}}, parameter({20, 20}, 0.3)};
  for (int norm = 0; norm < 2; ++norm) {
    for (const RealInput& input : norm_parameters(20)) inputs.push_back(input);
  }
  return inputs;
}

// Several ops on one tape: it adds the gradients of tensors that several ops use, and reuses buffers.
void add_chains(Cases& cases) {
  // Only cross_entropy uses the logits, so their gradient overwrites them.
  cases.push_back({"chain_head",
                   {{{2, 7, 20}}, parameter({128, 20}, 0.5)},
                   {{{2, 7}, 101}},
                   128,
                   [](Tape& tape, const Vars& x, const Ids& i) {
                     return Vars{cross_entropy(tape, linear(tape, x[0], x[1], Var()), i[0], 101)};
                   }});
  // The same, where the gradient overwrites the logits in the forward.
  cases.push_back({"chain_loss",
                   {{{2, 7, 20}}, parameter({128, 20}, 0.5)},
                   {{{2, 7}, 101}},
                   128,
                   [](Tape& tape, const Vars& x, const Ids& i) {
                     return Vars{cross_entropy_loss(tape, linear(tape, x[0], x[1], Var()), i[0], 101)};
                   },
                   /*is_loss=*/true});
  // The residual stream h has two branches. Its gradient is shared, accumulated and written in place.
  cases.push_back(
      {"chain_residual", chain_residual_inputs(), {}, 20, [](Tape& tape, const Vars& x, const Ids&) {
         const Var h = linear(tape, x[0], x[1], Var());
         const Var branch = layernorm(tape, h, x[2], x[3], kEps);
         const auto [sum, norm] = residual_layernorm(tape, h, branch, x[4], x[5], kEps);
         return Vars{dropout(tape, sum, some_dropout(0.2)), norm};
       }});
  // The second sum passes one tensor on as the gradient of `first` and of `early`. The backward of `early`
  // comes last, so the tensor has two holders when the first sum adds to it.
  cases.push_back(
      {"chain_two_residuals", chain_residual_inputs(), {}, 20, [](Tape& tape, const Vars& x, const Ids&) {
         const Var h = linear(tape, x[0], x[1], Var());
         const Var early = dropout(tape, h, some_dropout(0.2));
         const auto [first, norm] = residual_layernorm(tape, x[0], h, x[2], x[3], kEps);
         return Vars{norm, residual_layernorm(tape, first, early, x[4], x[5], kEps).second};
       }});
  // The residual stream with two branches, computed twice, of which an op in between is used only inside.
  cases.push_back(
      {"chain_recomputed", chain_residual_inputs(), {}, 20, [](Tape& tape, const Vars& x, const Ids&) {
         const Var h = linear(tape, x[0], x[1], Var());
         return tape.recompute([=](Tape& inner) {
           const Var branch = layernorm(inner, h, x[2], x[3], kEps);
           const auto [sum, norm] = residual_layernorm(inner, h, branch, x[4], x[5], kEps);
           return Vars{dropout(inner, sum, some_dropout(0.2)), norm};
         });
       }});
  // A block of which only the second output is used.
  cases.push_back({"chain_recomputed_in_part",
                   chain_residual_inputs(),
                   {},
                   20,
                   [](Tape& tape, const Vars& x, const Ids&) {
                     const Vars outs = tape.recompute([=](Tape& inner) {
                       const Var h = linear(inner, x[0], x[1], Var());
                       const Var branch = layernorm(inner, h, x[2], x[3], kEps);
                       const auto [sum, norm] = residual_layernorm(inner, h, branch, x[4], x[5], kEps);
                       return Vars{sum, norm};
                     });
                     return Vars{outs[1]};
                   }});
  // Two ops use the same weight, as GPT-2's embedding and head do.
  cases.push_back({"chain_tied",
                   {parameter({101, 20}), parameter({5, 20})},
                   {{{3, 5}, 101}},
                   101,
                   [](Tape& tape, const Vars& x, const Ids& i) {
                     return Vars{linear(tape, embedding(tape, i[0], x[0], x[1]), x[0], Var())};
                   }});
}

Cases make_cases() {
  Cases cases;
  add_embeddings(cases);
  add_linears(cases);
  add_mlps(cases);
  add_activations(cases);
  add_layernorms(cases);
  add_attentions(cases);
  add_dropouts(cases);
  add_cross_entropies(cases);
  add_chains(cases);
  return cases;
}

}  // namespace

const std::vector<OpCase>& op_cases() {
  static const std::vector<OpCase> cases = make_cases();
  return cases;
}

}  // namespace stagegpt::test
