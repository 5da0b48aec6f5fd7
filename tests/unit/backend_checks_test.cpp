// Ops reject arguments that do not fit together, with an error that names the op. See also
// op_arguments_test.cpp.
#include <gtest/gtest.h>

#include <functional>

#include "common/autograd/ops/attention.h"
#include "common/autograd/ops/cross_entropy.h"
#include "common/autograd/ops/embedding.h"
#include "common/autograd/ops/layernorm.h"
#include "common/autograd/ops/linear.h"
#include "common/backend/ops/adamw.h"
#include "common/backend/ops/elementwise.h"
#include "common/backend/planning_backend.h"
#include "stage0_serial/naive_backend.h"
#include "tests/support/refusal.h"
#include "tests/support/tensors.h"

namespace stagegpt::test {
namespace {

constexpr std::int64_t kB = 2, kT = 3, kC = 4, kO = 5, kVocabulary = 6, kPadded = 8;
constexpr int kHeads = 2;

// Tensors with matching shapes, one in f64 and none.
struct Tensors {
  explicit Tensors(Backend& backend) : be(backend) {}

  Tensor f32(Shape shape) const { return be.zeros(DType::f32, shape); }

  Backend& be;
  Tensor ids = be.zeros(DType::i32, {kB, kT});
  Tensor x = f32({kB, kT, kC}), y = f32({kB, kT, kC});
  Tensor wte = f32({kPadded, kC}), wpe = f32({7, kC});
  Tensor w = f32({kO, kC}), bias = f32({kO}), out = f32({kB, kT, kO});
  Tensor gain = f32({kC}), qkv = f32({kB, kT, 3 * kC}), lse = f32({kB, kHeads, kT});
  Tensor logits = f32({kB, kT, kPadded}), row_lse = f32({kB * kT}), loss = f32({1});
  Tensor norm = be.zeros(DType::f64, {1});
  Tensor f64 = be.zeros(DType::f64, {kB, kT, kC}), none;
};

Grad into(const Tensor& tensor) { return {tensor, GradMode::overwrite}; }

struct Call {
  const char* op;
  const char* fault;
  std::function<void(Backend&, const Tensors&)> run;
};

using T = const Tensors&;

// A function that runs an op with arguments of `t`.
#define RUN(...) [](Backend& be, T t) { be.run(__VA_ARGS__); }

// What op_arguments_test.cpp does not make, which changes one argument at a time, by its type or by one
// column.
const Call kCalls[] = {
    {"fill", "no tensor", [](Backend& be, T t) { be.fill(t.none, 0); }},
    {"copy_from_host", "no tensor",
     [](Backend& be, T t) { upload<float>(be, t.none, std::vector<float>(1)); }},
    {"copy_to_host", "no tensor", [](Backend& be, T t) { to_host<float>(be, t.none); }},
    {"add", "integers", RUN(Add{t.ids, t.ids, t.ids})},
    {"embedding_forward", "flat ids", RUN(EmbeddingForward{t.x, t.ids.view({6}), t.wte, t.wpe, {}})},
    {"embedding_forward", "fewer positions than tokens",
     RUN(EmbeddingForward{t.x, t.ids, t.wte, t.wpe.slice(0, {2, kC}), {}})},
    {"embedding_backward", "fewer positions than tokens",
     RUN(EmbeddingBackward{into(t.wte), into(t.wpe.slice(0, {2, kC})), t.x, t.ids})},
    {"adamw", "a shadow of f64",
     [](Backend& be, T t) {
       const Tensor shadow = be.zeros(DType::bf16, t.f64.shape());
       be.run(AdamWUpdate{t.f64, shadow, t.f64, t.f64, t.f64, t.norm, {}, {}});
     }},
    {"linear_forward", "a weight that is no matrix", RUN(LinearForward{t.out, t.x, t.gain, t.none})},
    {"linear_forward", "an output of other columns",
     RUN(LinearForward{t.out.view({5, 6}), t.x, t.w, t.bias})},
    {"attention_forward", "queries, keys and values without a batch",
     RUN(AttentionForward{t.y, t.lse, t.qkv.view({kB * kT, 3 * kC}), kHeads, 1, {}})},
    {"cross_entropy_forward", "a vocabulary beyond the columns",
     RUN(CrossEntropyForward{t.loss, t.row_lse, t.logits, t.ids, kPadded + 1})},
    {"cross_entropy_forward_backward", "a vocabulary beyond the columns",
     RUN(CrossEntropyForwardBackward{t.loss, t.logits, t.row_lse, t.loss, t.logits, t.ids, kPadded + 1})},
};

class BackendChecks : public testing::Test {
 protected:
  const std::unique_ptr<Backend> backend_ = make_naive_backend();
  const Tensors tensors_{*backend_};
};

TEST_F(BackendChecks, name_the_op_that_was_called_wrongly) {
  for (const Call& call : kCalls) {
    const std::string message = internal_error([&] { call.run(*backend_, tensors_); });
    EXPECT_TRUE(message.starts_with(call.op)) << call.op << " with " << call.fault << ": " << message;
  }
}

TEST_F(BackendChecks, name_what_a_copy_to_or_from_the_host_got) {
  const Tensor x = backend_->zeros(DType::f32, {3});
  std::array<std::byte, 8> bytes = {};
  EXPECT_EQ(internal_error([&] { backend_->copy_to_host(bytes, x); }),
            "copy_to_host: a tensor of 12 bytes into 8");
  EXPECT_EQ(internal_error([&] { backend_->copy_from_host(x, bytes); }),
            "copy_from_host: 8 bytes into a tensor of 12");
  EXPECT_EQ(internal_error([&] { upload<double>(*backend_, x, std::vector<double>(3)); }),
            "upload: f64 into f32");
}

// qkv must have three parts of equal width (queries, keys, values). Here it has four columns for one channel;
// all other shapes are right.
TEST_F(BackendChecks, name_the_shape_that_attention_wants) {
  const auto f32 = [&](Shape shape) { return backend_->zeros(DType::f32, shape); };
  const Tensor qkv = f32({kB, kT, 4}), out = f32({kB, kT, 1});
  const auto expect_named = [](const std::function<void()>& call) {
    const std::string message = internal_error(call);
    EXPECT_NE(message.find("qkv of shape (B,T,3C)"), std::string::npos) << message;
  };
  expect_named([&] { backend_->run(AttentionForward{out, f32({kB, 1, kT}), qkv, 1, 1, {}}); });
  expect_named([&] { backend_->run(CachedAttentionForward{out, f32({kB, kT, 2}), qkv, 1, 1, 0, {}}); });
}

TEST_F(BackendChecks, let_right_calls_pass) {
  Backend& be = *backend_;
  const Tensors& t = tensors_;
  EXPECT_NO_THROW(be.run(EmbeddingForward{t.x, t.ids, t.wte, t.wpe, {}}));
  EXPECT_NO_THROW(be.run(LinearForward{t.out, t.x, t.w, t.bias}));
  EXPECT_NO_THROW(be.run(LinearForward{t.out.view({6, kO}), t.x, t.w, t.none}));
  EXPECT_NO_THROW(be.run(LinearBackward{{}, into(t.w), {}, t.out, t.x, t.w}));
  EXPECT_NO_THROW(be.run(AttentionForward{t.y, t.lse, t.qkv, kHeads, 1, {}}));
  EXPECT_NO_THROW(be.run(CrossEntropyForward{t.loss, t.row_lse, t.logits, t.ids, kVocabulary}));
  EXPECT_NO_THROW(
      be.run(AdamWUpdate{t.x, t.none, t.x, t.x, t.x, t.norm, std::array{DecayRange{0, 24, 0}}, {}}));
}

// Calls with activations in bf16; statistics, LayerNorm's parameters and gradients of parameters are `dtype`.
std::vector<std::function<void()>> calls_in_bf16(Backend& be, DType dtype) {
  const auto half = [&](Shape shape) { return be.zeros(DType::bf16, shape); };
  const auto other = [&be, dtype](Shape shape) { return be.zeros(dtype, shape); };
  const Tensor ids = be.zeros(DType::i32, {kB, kT});
  const Tensor x = half({kB, kT, kC}), y = half({kB, kT, kC}), w = half({kO, kC}), out = half({kB, kT, kO}),
               qkv = half({kB, kT, 3 * kC}), logits = half({kB, kT, kPadded});
  const Tensor rows = other({kB * kT}), one = other({1}), lse = other({kB, kHeads, kT}), norm = other({kC}),
               f32_rows = be.zeros(DType::f32, {kB * kT}), f32_one = be.zeros(DType::f32, {1});
  return {[=, &be] {
            be.run(EmbeddingBackward{into(other({kPadded, kC})), {}, x, ids});
          },
          [=, &be] {
            be.run(EmbeddingBackward{{}, into(other({kT, kC})), x, ids});
          },
          [=, &be] {
            be.run(LinearBackward{{}, into(other({kO, kC})), {}, out, x, w});
          },
          [=, &be] {
            be.run(LinearBackward{{}, {}, into(other({kO})), out, x, w});
          },
          [=, &be] {
            be.run(LayernormForward{y, rows, rows, x, norm, norm, 1e-5});
          },
          [=, &be] {
            be.run(LayernormBackward{into(y), into(norm), into(norm), y, x, norm, rows, rows});
          },
          [=, &be] {
            be.run(AttentionForward{y, lse, qkv, kHeads, 1, {}});
          },
          [=, &be] {
            be.run(CrossEntropyForward{f32_one, rows, logits, ids, kVocabulary});
          },
          [=, &be] {
            be.run(CrossEntropyForward{one, f32_rows, logits, ids, kVocabulary});
          },
          [=, &be] {
            be.run(CrossEntropyBackward{logits, one, logits, f32_rows, ids, kVocabulary});
          },
          [=, &be] {
            be.run(CrossEntropyForwardBackward{one, logits, f32_rows, f32_one, logits, ids, kVocabulary});
          },
          [=, &be] {
            be.run(CrossEntropyForwardBackward{f32_one, logits, rows, f32_one, logits, ids, kVocabulary});
          },
          [=, &be] {
            be.run(CrossEntropyForwardBackward{f32_one, logits, f32_rows, one, logits, ids, kVocabulary});
          }};
}

TEST_F(BackendChecks, want_statistics_and_gradients_of_parameters_in_f32_where_activations_are_bf16) {
  const std::unique_ptr<Backend> planning =
      make_planning_backend();  // the plain one computes nothing in bf16
  for (const auto& call : calls_in_bf16(*planning, DType::f32)) EXPECT_NO_THROW(call());
  for (const auto& call : calls_in_bf16(*planning, DType::bf16)) EXPECT_THROW(call(), InternalError);
}

// A tensor with no columns has no rows, so there are no means to store.
TEST_F(BackendChecks, let_tensors_without_elements_pass) {
  const Tensor x = tensors_.f32({0, 0}), none = tensors_.f32({0}), one = tensors_.f32({1});
  EXPECT_NO_THROW(backend_->run(LayernormForward{x, none, none, x, none, none, 1e-5}));
  EXPECT_THROW(backend_->run(LayernormForward{x, one, one, x, none, none, 1e-5}), InternalError);
}

#undef RUN

}  // namespace
}  // namespace stagegpt::test
