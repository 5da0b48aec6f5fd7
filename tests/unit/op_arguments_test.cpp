// If an argument of an op is missing, or has a wrong dtype or shape, the error names the op.
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <limits>

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
#include "common/backend/planning_backend.h"
#include "common/base/error.h"
#include "tests/support/refusal.h"

namespace stagegpt::test {
namespace {

constexpr std::int64_t kB = 2, kT = 3, kC = 4, kO = 5, kVocabulary = 6, kPadded = 8;
constexpr int kHeads = 2;

struct Argument {
  const char* name;  // the name in messages
  DType dtype = DType::f32;
  Shape shape;
  bool optional = false, any_real_type = false, any_width = false;
};

using Arguments = std::vector<Tensor>;

struct Op {
  const char* name;
  std::vector<Argument> arguments;
  std::function<void(Backend&, const Arguments&)> call;
};

// A function that runs an op with arguments of `t`.
#define RUN(...) [](Backend& be, const Arguments& t) { be.run(__VA_ARGS__); }

Grad into(const Tensor& tensor) { return {tensor, GradMode::overwrite}; }

const Shape kX{kB, kT, kC}, kOut{kB, kT, kO}, kW{kO, kC}, kQkv{kB, kT, 3 * kC}, kLogits{kB, kT, kPadded};
const Argument kIds{"ids", DType::i32, {kB, kT}}, kTargets{"targets", DType::i32, {kB * kT}};
const Argument kMean{"mean", DType::f32, {kB * kT}}, kRstd{"rstd", DType::f32, {kB * kT}};
const Argument kGain{"weight", DType::f32, {kC}}, kShift{"bias", DType::f32, {kC}};
const Argument kLse{"lse", DType::f32, {kB, kHeads, kT}}, kRowLse{"lse", DType::f32, {kB * kT}};

Argument f32(const char* name, Shape shape) { return {name, DType::f32, shape}; }

const Argument kWideLogits{.name = "logits", .shape = kLogits, .any_width = true};
const Argument kAnyLogits{.name = "logits", .shape = kLogits, .any_real_type = true, .any_width = true};
const Argument kAnyX{.name = "x", .shape = kX, .any_real_type = true, .any_width = true};

const Op kOps[] = {
    {"copy", {f32("out", kX), f32("in", kX)}, [](Backend& be, const Arguments& t) { be.copy(t[0], t[1]); }},
    {"add", {f32("out", kX), f32("a", kX), f32("b", kX)}, RUN(Add{t[0], t[1], t[2]})},
    {"cast", {{"out", DType::bf16, kX}, f32("in", kX)}, RUN(Cast{t[0], t[1]})},
    {"ids_in_part",
     {{"out", DType::i32, {kB, kT}}, {"in", DType::i32, {kB, kT}}},
     RUN(IdsInPart{t[0], t[1], 0, kVocabulary, kVocabulary})},
    {"embedding_forward",
     {f32("out", kX),
      kIds,
      f32("wte", {kPadded, kC}),
      {"wpe", DType::f32, {kT, kC}, true},
      {"position", DType::i32, {1}, true}},
     RUN(EmbeddingForward{t[0], t[1], t[2], t[3], t[4]})},
    {"embedding_backward",
     {f32("dwte", {kPadded, kC}), f32("dwpe", {kT, kC}), f32("dout", kX), kIds},
     RUN(EmbeddingBackward{into(t[0]), into(t[1]), t[2], t[3]})},
    {"linear_forward",
     {f32("out", kOut), f32("x", kX), f32("weight", kW), {"bias", DType::f32, {kO}, true}},
     RUN(LinearForward{t[0], t[1], t[2], t[3]})},
    {"linear_backward",
     {f32("dx", kX), f32("dw", kW), f32("dbias", {kO}), f32("out", kOut), f32("x", kX), f32("weight", kW)},
     RUN(LinearBackward{into(t[0]), into(t[1]), into(t[2]), t[3], t[4], t[5]})},
    {"linear_activation_forward",
     {f32("out", kOut),
      f32("pre-activation", kOut),
      f32("x", kX),
      f32("weight", kW),
      {"bias", DType::f32, {kO}, true}},
     RUN(LinearActivationForward{t[0], t[1], t[2], t[3], t[4], Activation::relu})},
    {"activation_linear_backward",
     {f32("dpre", kX), f32("dw", kW), f32("dbias", {kO}), f32("out", kOut), f32("x", kX),
      f32("pre-activation", kX), f32("weight", kW)},
     RUN(ActivationLinearBackward{t[0], into(t[1]), into(t[2]), t[3], t[4], t[5], t[6], Activation::relu})},
    {"activation_forward",
     {f32("out", kX), f32("x", kX)},
     RUN(ActivationForward{t[0], t[1], Activation::relu})},
    {"activation_backward",
     {f32("dx", kX), f32("dout", kX), f32("x", kX)},
     RUN(ActivationBackward{into(t[0]), t[1], t[2], Activation::relu})},
    {"layernorm_forward",
     {f32("out", kX), kMean, kRstd, f32("x", kX), kGain, kShift},
     RUN(LayernormForward{t[0], t[1], t[2], t[3], t[4], t[5], 1e-5})},
    {"residual_layernorm_forward",
     {f32("sum", kX), f32("out", kX), kMean, kRstd, f32("x", kX), f32("residual", kX), kGain, kShift},
     RUN(ResidualLayernormForward{t[0], t[1], t[2], t[3], t[4], t[5], t[6], t[7], 1e-5})},
    {"layernorm_backward",
     {f32("dx", kX), f32("dw", {kC}), f32("dbias", {kC}), f32("out", kX), f32("x", kX), kGain, kMean, kRstd},
     RUN(LayernormBackward{into(t[0]), into(t[1]), into(t[2]), t[3], t[4], t[5], t[6], t[7]})},
    {"attention_forward",
     {f32("out", kX), kLse, f32("qkv", kQkv)},
     RUN(AttentionForward{t[0], t[1], t[2], kHeads, 1, {}})},
    {"attention_backward",
     {f32("dqkv", kQkv), f32("dout", kX), f32("out", kX), kLse, f32("qkv", kQkv)},
     RUN(AttentionBackward{into(t[0]), t[1], t[2], t[3], t[4], kHeads, 1, {}})},
    {"cached_attention_forward",
     {f32("out", kX), f32("cache", {kB, 10, 2 * kC}), f32("qkv", kQkv), {"position", DType::i32, {1}, true}},
     RUN(CachedAttentionForward{t[0], t[1], t[2], kHeads, 1, 7, t[3]})},
    {"norm_linear_forward",
     {f32("out", kOut),
      f32("sum", kX),
      f32("x", kX),
      {"residual", DType::f32, kX, true},
      f32("layernorm's weight", {kC}),
      f32("layernorm's bias", {kC}),
      f32("weight", kW),
      {"bias", DType::f32, {kO}, true}},
     RUN(NormLinearForward{t[0], t[1], t[2], t[3], t[4], t[5], 1e-5, t[6], t[7], Activation::relu})},
    {"dropout_forward", {f32("out", kX), f32("x", kX)}, RUN(DropoutForward{t[0], t[1], {}})},
    {"dropout_backward", {f32("dx", kX), f32("dout", kX)}, RUN(DropoutBackward{into(t[0]), t[1], {}})},
    {"cross_entropy_forward",
     {f32("loss", {1}), kRowLse, kWideLogits, kTargets},
     RUN(CrossEntropyForward{t[0], t[1], t[2], t[3], kVocabulary})},
    {"cross_entropy_backward",
     {f32("dlogits", kLogits), f32("dloss", {1}), f32("logits", kLogits), kRowLse, kTargets},
     RUN(CrossEntropyBackward{t[0], t[1], t[2], t[3], t[4], kVocabulary})},
    {"cross_entropy_part_forward",
     {kRowLse, f32("picked", {kB * kT}), kWideLogits, kTargets},
     RUN(CrossEntropyPartForward{t[0], t[1], t[2], t[3], kVocabulary})},
    {"cross_entropy_of_parts",
     {f32("loss", {1}), kRowLse, f32("parts", {2, 2, kB* kT})},
     RUN(CrossEntropyOfParts{t[0], t[1], t[2]})},
    {"cross_entropy_forward_backward",
     {f32("loss", {1}), f32("dlogits", kLogits), f32("rows", {kB * kT}), f32("dloss", {1}),
      f32("logits", kLogits), kTargets},
     RUN(CrossEntropyForwardBackward{t[0], t[1], t[2], t[3], t[4], t[5], kVocabulary})},
    {"count_correct",
     {{"count", DType::i32, {1}}, kAnyLogits, kTargets},
     RUN(CountCorrect{t[0], t[1], t[2], kVocabulary})},
    {"largest_logits",
     {f32("values", {3}), {"ids", DType::i32, {3}}, {.name = "logits", .shape = {9}, .any_width = true}},
     RUN(LargestLogits{t[0], t[1], t[2]})},
    {"draw_tokens",
     {{"ids", DType::i32, {2}}, {.name = "logits", .shape = {2, 9}, .any_width = true}},
     RUN(DrawTokens{t[0], t[1], kVocabulary, 1, {}, 0})},
    {"squared_norm", {{"out", DType::f64, {1}}, kAnyX}, RUN(SquaredNorm{t[0], t[1]})},
    {"sum",
     {{"out", DType::f64, {1}}, {.name = "x", .dtype = DType::f64, .shape = {5}, .any_width = true}},
     RUN(Sum{t[0], t[1]})},
    {"adamw",
     {f32("weights", {24}),
      {"shadow", DType::bf16, {24}, true},
      f32("arena", {24}),
      f32("arena", {24}),
      f32("arena", {24}),
      {"squared norm", DType::f64, {1}}},
     RUN(AdamWUpdate{t[0], t[1], t[2], t[3], t[4], t[5], std::array{DecayRange{0, 24, 0}}, {}})},
};

// The same shape with one column more.
Shape one_wider(const Shape& shape) {
  const std::int64_t columns = shape[-1] + 1;
  if (shape.rank() == 1) return {columns};
  return shape.rank() == 2 ? Shape{shape[0], columns} : Shape{shape[0], shape[1], columns};
}

// Uses a backend that computes nothing, so a call that is not refused has no effect.
class OpArguments : public testing::Test {
 protected:
  Arguments fitting(const Op& op) {
    Arguments tensors;
    for (const Argument& argument : op.arguments)
      tensors.push_back(backend_->allocate(argument.dtype, argument.shape));
    return tensors;
  }
  // The error message if argument i is replaced by `other`; empty if there is no error.
  std::string refusal(const Op& op, std::size_t i, const Tensor& other) {
    Arguments tensors = fitting(op);
    tensors[i] = other;
    try {
      op.call(*backend_, tensors);
    } catch (const InternalError& error) {
      return error.what();
    }
    return "";
  }
  static bool begins_with_name(const Op& op, const std::string& message) {
    return message.starts_with(concat(op.name, ": "));
  }

  const std::unique_ptr<Backend> backend_ = make_planning_backend();
};

TEST_F(OpArguments, that_fit_are_taken) {
  for (const Op& op : kOps) EXPECT_NO_THROW(op.call(*backend_, fitting(op))) << op.name;
}

TEST_F(OpArguments, that_are_missing_are_named) {
  for (const Op& op : kOps) {
    for (std::size_t i = 0; i < op.arguments.size(); ++i) {
      const Argument& argument = op.arguments[i];
      const std::string expected =
          argument.optional ? "" : concat(op.name, ": ", argument.name, " is missing");
      EXPECT_EQ(refusal(op, i, Tensor()), expected);
    }
  }
}

TEST_F(OpArguments, of_another_type_are_refused) {
  for (const Op& op : kOps) {
    for (std::size_t i = 0; i < op.arguments.size(); ++i) {
      const Argument& argument = op.arguments[i];
      for (const DType dtype : {DType::f32, DType::f64, DType::i32}) {
        if (dtype == argument.dtype || (argument.any_real_type && dtype == DType::f64)) continue;
        const std::string message = refusal(op, i, backend_->allocate(dtype, argument.shape));
        EXPECT_TRUE(begins_with_name(op, message)) << op.name << ", " << argument.name << ": " << message;
      }
    }
  }
}

TEST_F(OpArguments, of_another_shape_are_refused) {
  for (const Op& op : kOps) {
    for (std::size_t i = 0; i < op.arguments.size(); ++i) {
      const Argument& argument = op.arguments[i];
      const Tensor wider = backend_->allocate(argument.dtype, one_wider(argument.shape));
      const std::string message = refusal(op, i, wider);
      if (argument.any_width) {
        EXPECT_EQ(message, "");
      } else {
        EXPECT_TRUE(begins_with_name(op, message)) << op.name << ", " << argument.name << ": " << message;
      }
    }
  }
}

TEST_F(OpArguments, that_are_numbers_have_their_ranges) {
  Backend& be = *backend_;
  const Tensor out = be.allocate(DType::f32, kX), qkv = be.allocate(DType::f32, kQkv),
               cache = be.allocate(DType::f32, {kB, 10, 2 * kC});
  const auto cached = [&](int heads, std::int64_t first) {
    return internal_error([&] { be.run(CachedAttentionForward{out, cache, qkv, heads, 1, first, {}}); });
  };
  EXPECT_EQ(cached(kHeads, 0), "");
  EXPECT_EQ(cached(kHeads, 7), "");
  EXPECT_EQ(cached(kHeads, 8), "cached_attention_forward: expected room for the new tokens in the cache");
  EXPECT_EQ(cached(kHeads, -1), "cached_attention_forward: expected room for the new tokens in the cache");
  for (const int heads : {0, -2, 3}) {
    EXPECT_EQ(cached(heads, 0),
              "cached_attention_forward: expected a number of heads that divides the channels");
  }
  const Tensor lse = be.allocate(DType::f32, {kB, 3, kT});
  EXPECT_EQ(internal_error([&] {
              be.run(AttentionForward{out, lse, qkv, 3, 1, {}});
            }),
            "attention_forward: expected a number of heads that divides the channels");
  const Tensor own_lse = be.allocate(DType::f32, {kB, kHeads, kT});
  for (const double scale : {0.0, -0.1, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_EQ(internal_error([&] {
                be.run(AttentionForward{out, own_lse, qkv, kHeads, scale, {}});
              }),
              "attention_forward: expected a positive scale");
    EXPECT_EQ(internal_error([&] {
                be.run(CachedAttentionForward{out, cache, qkv, kHeads, scale, 0, {}});
              }),
              "cached_attention_forward: expected a positive scale");
  }
  // The number of elements is right, but the shape is wrong.
  const Tensor product = be.allocate(DType::f32, kOut), w = be.allocate(DType::f32, kW),
               wide = be.allocate(DType::f32, {kB, 2, 6});
  EXPECT_EQ(internal_error([&] {
              be.run(LinearForward{product, wide, w, Tensor()});
            }),
            "linear_forward: expected x with as many columns as the weight");
  const Tensor logits = be.allocate(DType::f32, kLogits), targets = be.allocate(DType::i32, {kB * kT}),
               count = be.allocate(DType::i32, {1});
  const auto counted = [&](std::int64_t vocabulary) {
    return internal_error([&] { be.run(CountCorrect{count, logits, targets, vocabulary}); });
  };
  EXPECT_EQ(counted(1), "");
  EXPECT_EQ(counted(kPadded), "");
  for (const std::int64_t vocabulary : {std::int64_t{0}, kPadded + 1}) {
    EXPECT_EQ(counted(vocabulary), "count_correct: expected a vocabulary no larger than the logits' columns");
  }
  const Tensor arena = be.allocate(DType::f32, {24}), norm = be.allocate(DType::f64, {1});
  const auto updated = [&](const DecayRange& range, std::int64_t step) {
    return internal_error([&] {
      be.run(AdamWUpdate{arena, {}, arena, arena, arena, norm, std::array{range}, {.step = step}});
    });
  };
  EXPECT_EQ(updated({0, 0, 0}, 1), "");
  EXPECT_EQ(updated({24, 24, 0}, 1), "");
  EXPECT_EQ(updated({0, 24, 0}, 0), "adamw: expected a step that counts from 1");
  for (const DecayRange& range : {DecayRange{-1, 3, 0}, {3, 2, 0}, {0, 25, 0}}) {
    EXPECT_EQ(updated(range, 1), "adamw: expected ranges inside the arena");
  }
}

#undef RUN

}  // namespace
}  // namespace stagegpt::test
