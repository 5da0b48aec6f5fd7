// The work that ops report, compared with counts made by hand.

#include <gtest/gtest.h>

#include "common/autograd/ops/attention.h"
#include "common/autograd/ops/cross_entropy.h"
#include "common/autograd/ops/dropout.h"
#include "common/autograd/ops/embedding.h"
#include "common/autograd/ops/layernorm.h"
#include "common/autograd/ops/linear.h"
#include "common/autograd/ops/norm_linear.h"
#include "common/backend/ops/activation.h"
#include "common/backend/ops/adamw.h"
#include "common/backend/ops/draw_tokens.h"
#include "common/backend/ops/elementwise.h"
#include "common/backend/ops/largest_logits.h"
#include "common/backend/ops/sums.h"
#include "common/backend/profiler.h"
#include "common/model/gpt2.h"
#include "common/optim/adamw.h"
#include "stage0_serial/cpu_backend.h"
#include "tests/support/tensors.h"
#include "tools/bench/gemm_bound.h"

namespace stagegpt::test {
namespace {

// B = 2 sequences of T = 3 tokens, C = 4 channels in 2 heads, O = 5 outputs. The logits have 8 columns, of
// which 6 belong to tokens.
struct Tensors {
  explicit Tensors(Backend& backend) : be(backend) {}
  Tensor f32(Shape shape) const { return be.zeros(DType::f32, shape); }

  Backend& be;
  Tensor ids = be.zeros(DType::i32, {2, 3}), targets = be.zeros(DType::i32, {6});
  Tensor x = f32({2, 3, 4}), y = f32({2, 3, 4}), z = f32({2, 3, 4});
  Tensor w = f32({5, 4}), bias = f32({5}), out = f32({2, 3, 5}), pre = f32({2, 3, 5});
  Tensor wte = f32({8, 4}), wpe = f32({7, 4});
  Tensor gain = f32({4}), shift = f32({4}), mean = f32({6}), rstd = f32({6});
  Tensor qkv = f32({2, 3, 12}), dqkv = f32({2, 3, 12}), lse = f32({2, 2, 3});
  Tensor logits = f32({6, 8}), row_lse = f32({6}), loss = f32({1});
  Tensor norm = be.zeros(DType::f64, {1});
};

Grad overwrite(const Tensor& tensor) { return {tensor, GradMode::overwrite}; }
Grad accumulate(const Tensor& tensor) { return {tensor, GradMode::accumulate}; }

class WorkOfOps : public ::testing::Test {
 protected:
  // Calls `run`, which runs one op, and compares the work that the profiler recorded. `words` have four
  // bytes.
  template <class Run>
  void expect(const char* name, double flops, double words, const Run& run) {
    Profiler profiler(*backend_);
    run();
    ASSERT_EQ(profiler.entries().size(), 1u) << name;
    const Profiler::Entry entry = profiler.entries()[0];
    EXPECT_EQ(entry.name, name);
    EXPECT_EQ(entry.work.flops, flops) << name;
    EXPECT_EQ(entry.work.bytes, 4 * words) << name;
  }
  template <class Op>
  void expect(const Op& op, double flops, double words) {
    expect(Op::kName, flops, words, [&] { be_.run(op); });
  }

  const std::unique_ptr<Backend> backend_ = make_cpu_backend(1);
  Backend& be_ = *backend_;
  const Tensors t_{*backend_};
};

TEST_F(WorkOfOps, moving_memory_is_no_arithmetic) {
  expect(Fill{t_.x, 1}, 0, 24);
  expect(Copy{t_.x, t_.y}, 0, 24 + 24);
  expect("copy_from_host", 0, 20 + 20, [&] { upload<float>(be_, t_.w, std::vector<float>(20)); });
  expect("copy_to_host", 0, 20 + 20, [&] { to_host<float>(be_, t_.w); });
  expect(Add{t_.x, t_.y, t_.z}, 24, 3 * 24);
}

TEST_F(WorkOfOps, linear_layers_are_two_operations_for_each_product) {
  constexpr double kProduct = 2 * 6 * 4 * 5;
  expect(LinearForward{t_.out, t_.x, t_.w, Tensor()}, kProduct, 24 + 20 + 30);
  expect(LinearForward{t_.out, t_.x, t_.w, t_.bias}, kProduct + 30, 24 + 20 + 5 + 30);
  expect(LinearActivationForward{t_.out, t_.pre, t_.x, t_.w, t_.bias, Activation::relu}, kProduct + 30 + 30,
         24 + 20 + 5 + 30 + 30);
  // Reads dout, x, w and pre, writes dpre, dw and dbias; relu's derivative is a product.
  expect(ActivationLinearBackward{t_.y, overwrite(t_.w), overwrite(t_.bias), t_.out, t_.x, t_.z, t_.w,
                                  Activation::relu},
         2 * kProduct + 30 + 24, 30 + 3 * 24 + 2 * 20 + 5);
}

TEST_F(WorkOfOps, linear_gradients_are_counted_where_they_are_wanted) {
  constexpr double kProduct = 2 * 6 * 4 * 5;
  expect(LinearBackward{overwrite(t_.y), {}, {}, t_.out, t_.x, t_.w}, kProduct, 30 + 20 + 24);
  expect(LinearBackward{{}, accumulate(t_.w), {}, t_.out, t_.x, t_.w}, kProduct, 30 + 24 + 2 * 20);
  expect(LinearBackward{overwrite(t_.y), overwrite(t_.w), overwrite(t_.bias), t_.out, t_.x, t_.w},
         2 * kProduct + 30, 30 + 20 + 24 + 24 + 20 + 5);
}

TEST_F(WorkOfOps, a_gradient_that_is_skipped_moves_no_bytes) {
  const Grad skipped{t_.w, GradMode::skip};  // a tensor is allowed
  expect(LinearBackward{overwrite(t_.y), skipped, {}, t_.out, t_.x, t_.w}, 2 * 6 * 4 * 5, 30 + 24 + 20);
}

TEST_F(WorkOfOps, attention_is_causal) {
  constexpr double kPairs = 2 * 2 * (1 + 2 + 3), kHeadSize = 2;
  expect(AttentionForward{t_.x, t_.lse, t_.qkv, 2, 1, {}}, kPairs * (4 * kHeadSize + 5) + 24, 72 + 24 + 12);
  expect(AttentionBackward{overwrite(t_.dqkv), t_.y, t_.x, t_.lse, t_.qkv, 2, 1, {}},
         kPairs * (10 * kHeadSize + 6) + 2 * 24, 72 + 24 + 24 + 12 + 72);
}

TEST_F(WorkOfOps, cached_attention_reads_the_tokens_before) {
  constexpr double kPairs = 2 * 2 * (6 + 7 + 8), kHeadSize = 2;
  const Tensor cache = t_.f32({2, 10, 8});
  expect(CachedAttentionForward{t_.x, cache, t_.qkv, 2, 1, 5, {}}, kPairs * (4 * kHeadSize + 5) + 24,
         72 + 24 + 2 * 8 * 8);
}

TEST_F(WorkOfOps, bf16_is_half_as_many_bytes) {
  const Tensor w = be_.zeros(DType::bf16, {5, 4}), wte = be_.zeros(DType::bf16, {8, 4});
  expect(Cast{w, t_.w}, 20, 20 + 10);
  expect(LinearForward{t_.out, t_.x, w, Tensor()}, 2 * 6 * 4 * 5, 30 + 24 + 10);
  expect(EmbeddingForward{t_.x, t_.ids, wte, t_.wpe, {}}, 24, 6 + 24 + 12 + 12);
}

TEST_F(WorkOfOps, counting_reads_the_real_logits) {
  const Tensor n = be_.zeros(DType::i32, {1});
  expect(CountCorrect{n, t_.logits, t_.targets, 6}, 36, 36 + 6 + 1);
}

TEST_F(WorkOfOps, the_largest_logits_are_among_all) {
  const Tensor ids = be_.zeros(DType::i32, {2});
  expect(LargestLogits{t_.f32({2}), ids, t_.f32({40})}, 40, 2 + 2 + 40);
}

TEST_F(WorkOfOps, tokens_are_drawn_from_the_vocabulary) {
  const Tensor ids = be_.zeros(DType::i32, {2});
  expect(DrawTokens{ids, t_.f32({2, 40}), 33, 1, {}, 0}, 4 * 2 * 33, 2 + 2 * 33);
}

TEST_F(WorkOfOps, embeddings_read_the_rows_that_are_looked_up) {
  expect(EmbeddingForward{t_.x, t_.ids, t_.wte, t_.wpe, {}}, 24, 6 + 24 + 12 + 24);
  expect(EmbeddingBackward{overwrite(t_.wte), overwrite(t_.wpe), t_.x, t_.ids}, 2 * 24, 6 + 24 + 32 + 28);
  expect(EmbeddingBackward{accumulate(t_.wte), accumulate(t_.wpe), t_.x, t_.ids}, 2 * 24,
         6 + 24 + 2 * 24 + 2 * 12);
}

TEST_F(WorkOfOps, layernorms_keep_mean_and_deviation) {
  expect(LayernormForward{t_.y, t_.mean, t_.rstd, t_.x, t_.gain, t_.shift, 1e-5}, 8 * 24,
         24 + 4 + 4 + 24 + 6 + 6);
  expect(ResidualLayernormForward{t_.z, t_.y, t_.mean, t_.rstd, t_.x, t_.x, t_.gain, t_.shift, 1e-5}, 9 * 24,
         3 * 24 + 4 + 4 + 24 + 6 + 6);
  expect(LayernormBackward{overwrite(t_.z), overwrite(t_.gain), overwrite(t_.shift), t_.y, t_.x, t_.gain,
                           t_.mean, t_.rstd},
         13 * 24, 24 + 24 + 4 + 6 + 6 + 24 + 4 + 4);
}

// Not run: on a processor it is the ops that it combines.
TEST_F(WorkOfOps, a_norm_within_a_linear_layer_is_not_written) {
  const Tensor none;
  const Work added = NormLinearForward{t_.out,   t_.z, t_.x, t_.x, t_.gain,
                                       t_.shift, 1e-5, t_.w, none, Activation::relu}
                         .work(),
             alone = NormLinearForward{t_.out,   none, t_.x, none, t_.gain,
                                       t_.shift, 1e-5, t_.w, none, Activation::none}
                         .work();
  EXPECT_EQ(added.flops, 9 * 24 + 2 * 6 * 4 * 5 + 30);
  EXPECT_EQ(added.bytes, 4 * (30 + 24 + 20 + 24 + 24 + 4 + 4));
  EXPECT_EQ(alone.flops, 8 * 24 + 2 * 6 * 4 * 5);
  EXPECT_EQ(alone.bytes, 4 * (30 + 24 + 20 + 4 + 4));
}

TEST_F(WorkOfOps, elementwise_ops_read_and_write_each_element) {
  expect(ActivationForward{t_.y, t_.x, Activation::gelu_new}, 8 * 24, 24 + 24);
  expect(ActivationBackward{overwrite(t_.z), t_.y, t_.x, Activation::gelu_new}, 16 * 24, 24 + 24 + 24);
  expect(ActivationForward{t_.y, t_.x, Activation::gelu}, 5 * 24, 24 + 24);
  expect(ActivationBackward{overwrite(t_.z), t_.y, t_.x, Activation::gelu}, 11 * 24, 24 + 24 + 24);
  expect(ActivationForward{t_.y, t_.x, Activation::relu}, 24, 24 + 24);
  expect(ActivationForward{t_.y, t_.x, Activation::none}, 0, 24 + 24);
  expect(ActivationBackward{overwrite(t_.z), t_.y, t_.x, Activation::none}, 0, 24 + 24 + 24);
  expect(DropoutForward{t_.y, t_.x, {}}, 24, 24 + 24);
  expect(DropoutBackward{accumulate(t_.y), t_.x, {}}, 24, 24 + 2 * 24);
}

TEST_F(WorkOfOps, the_loss_reads_the_real_vocabulary) {
  expect(CrossEntropyForward{t_.loss, t_.row_lse, t_.logits, t_.targets, 6}, 4 * 36, 36 + 6 + 6 + 1);
  expect(CrossEntropyBackward{t_.logits, t_.loss, t_.logits, t_.row_lse, t_.targets, 6}, 3 * 36,
         36 + 6 + 6 + 1 + 48);
  expect(CrossEntropyForwardBackward{t_.loss, t_.logits, t_.row_lse, t_.loss, t_.logits, t_.targets, 6},
         7 * 36, 36 + 6 + 2 + 48);
}

TEST_F(WorkOfOps, adamw_moves_28_bytes_an_element_of_its_ranges_and_2_of_the_shadow) {
  const DecayRange ranges[] = {{0, 10, 0.1}, {10, 16, 0}};
  expect(SquaredNorm{t_.norm, t_.x}, 2 * 24, 24 + 2);
  expect(AdamWUpdate{t_.x, {}, t_.y, t_.z, t_.x, t_.norm, ranges, {}}, 15 * 16, 7 * 16);
  const Tensor shadow = be_.zeros(DType::bf16, t_.x.shape());
  expect(AdamWUpdate{t_.x, shadow, t_.y, t_.z, t_.x, t_.norm, ranges, {}}, 15 * 16, 7.5 * 16);
}

// FLOPs of all linear ops in a profile.
double linear_flops(const Profiler& profiler) {
  double flops = 0;
  for (const auto& entry : profiler.entries()) {
    if (entry.name.starts_with("linear")) flops += entry.work.flops;
  }
  return flops;
}

TEST(WorkOfSteps, linear_ops_are_three_products_for_each_weight_and_their_biases) {
  constexpr std::int64_t kL = 3, kC = 8, kVp = 128, kB = 2, kT = 5, kN = kB * kT, kMicroSteps = 2;
  const Gpt2Config config{.vocab_size = 101,
                          .block_size = 6,
                          .n_layer = kL,
                          .n_head = 2,
                          .n_embd = kC,
                          .activation = Activation::relu};
  const std::unique_ptr<Backend> backend = make_cpu_backend(1);
  backend->set_fused(false);  // activations are separate ops
  Gpt2 model(*backend, config);
  model.parameters().initialize(1);
  const AdamW optimizer(*backend, model.parameters(), {});
  const GemmBound bound(*backend, model, optimizer, {kN, kMicroSteps});
  const std::vector<float> weights = to_host<float>(*backend, model.parameters().weights());

  const auto linear_flops_of = [&](const auto& run) {
    Profiler profiler(*backend);
    run();
    return linear_flops(profiler);
  };
  const double step = linear_flops_of([&] {
    for (std::int64_t micro = 0; micro < kMicroSteps; ++micro) {
      Tape tape(*backend);
      tape.backward(model.loss(tape, to_tensor(*backend, {kB, kT}, random_ids(1, 0, kN, 101)),
                               to_tensor(*backend, {kB, kT}, random_ids(1, 1, kN, 101))));
    }
  });
  const double products = linear_flops_of([&] {
    bound.products();
    bound.adamw();
  });

  // Weights per layer: 3C² for qkv, C² for the projection, and twice 4C² in the MLP. Biases: 9C, added in
  // forward and summed in backward.
  constexpr double kGemms = 3.0 * 2 * kMicroSteps * kN * (12 * kL * kC * kC + kVp * kC);
  EXPECT_EQ(products, kGemms);
  EXPECT_EQ(step, kGemms + 2.0 * kMicroSteps * kN * 9 * kL * kC);
  EXPECT_EQ(to_host<float>(*backend, model.parameters().weights()), weights);
}

}  // namespace
}  // namespace stagegpt::test
