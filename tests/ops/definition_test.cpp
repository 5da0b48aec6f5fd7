// The plain kernels in f64, compared with direct implementations of the ops' formulas. Central differences
// (gradient_check_test.cpp) show that backward matches forward. This test shows that forward is correct.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <numbers>

#include "common/autograd/ops/attention.h"
#include "common/autograd/ops/cross_entropy.h"
#include "common/autograd/ops/embedding.h"
#include "common/autograd/ops/layernorm.h"
#include "common/autograd/ops/linear.h"
#include "common/backend/ops/activation.h"
#include "stage0_serial/kernels/layernorm.h"
#include "stage0_serial/naive_backend.h"
#include "tests/support/difference.h"
#include "tests/support/tensors.h"
#include "tests/support/tolerance.h"

namespace stagegpt::test {
namespace {

class Definition : public testing::Test {
 protected:
  Tensor tensor(Shape shape, const Values& values) { return to_tensor(*backend_, DType::f64, shape, values); }
  Tensor empty(Shape shape) { return backend_->allocate(DType::f64, shape); }
  // Expects that `tensor` contains `expected`, apart from rounding errors of sums of K terms.
  void expect_values(const Tensor& tensor, const Values& expected, std::int64_t K) {
    const Values got = to_values(*backend_, tensor);
    const double limit = error_limit(0, K, DType::f64);
    EXPECT_LE(relative_error(got, expected), limit)
        << describe_difference(got, expected, tensor.shape(), limit);
  }
  void expect_activation(Activation activation, double (*f)(double)) {
    const Values x = random_values(1, 0, 101, 2);
    const Tensor out = empty({101});
    backend_->run(ActivationForward{out, tensor({101}, x), activation});
    Values expected;
    for (const double value : x) expected.push_back(f(value));
    expect_values(out, expected, 1);
  }

  const std::unique_ptr<Backend> backend_ = make_naive_backend();
};

TEST_F(Definition, gelu_new_is_the_tanh_form) {
  expect_activation(Activation::gelu_new, [](double x) {
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
  });
}

TEST_F(Definition, gelu_is_x_times_the_normal_distribution) {
  expect_activation(Activation::gelu, [](double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); });
}

TEST_F(Definition, relu_and_none) {
  expect_activation(Activation::relu, [](double x) { return std::max(x, 0.0); });
  expect_activation(Activation::none, [](double x) { return x; });
}

TEST_F(Definition, embedding_adds_a_token_and_a_position) {
  const Tensor out = empty({2, 3, 1});
  const auto embedding = [&](const Tensor& position) {
    backend_->run(EmbeddingForward{out, to_tensor(*backend_, {2, 3}, {3, 0, 3, 1, 1, 2}),
                                   tensor({4, 1}, {10, 20, 30, 40}), tensor({5, 1}, {1, 2, 3, 4, 5}),
                                   position});
    return to_values(*backend_, out);
  };
  EXPECT_EQ(embedding({}), (Values{41, 12, 43, 21, 22, 33}));
  EXPECT_EQ(embedding(to_tensor(*backend_, {1}, {2})), (Values{43, 14, 45, 23, 24, 35}));
}

TEST_F(Definition, linear_multiplies_by_the_transposed_weight) {
  const Tensor out = empty({2, 3});
  backend_->run(LinearForward{out, tensor({2, 2}, {1, 2, 3, 4}), tensor({3, 2}, {1, 0, 0, 1, 5, 6}),
                              tensor({3}, {100, 200, 300})});
  EXPECT_EQ(to_values(*backend_, out), (Values{101, 202, 317, 103, 204, 339}));
}

TEST_F(Definition, layernorm_uses_the_biased_variance_and_eps_under_the_root) {
  constexpr double kEps = 0.25;
  const Tensor out = empty({1, 4}), mean = empty({1}), rstd = empty({1});
  backend_->run(LayernormForward{out, mean, rstd, tensor({1, 4}, {1, 2, 3, 6}), tensor({4}, {1, 2, 3, 4}),
                                 tensor({4}, {5, 6, 7, 8}), kEps});
  const double r = 1 / std::sqrt((4 + 1 + 0 + 9) / 4.0 + kEps);  // squared deviations from the mean, 3
  expect_values(out, {5 - 2 * r, 6 - 2 * r, 7, 8 + 12 * r}, 4);
  expect_values(mean, {3}, 1);
  expect_values(rstd, {r}, 1);
}

// The loss of two rows of three logits and one column of padding, whose targets are 2 and 0.
struct SmallCrossEntropy {
  Values logits = random_values(1, 0, 2 * 4);
  std::vector<std::int32_t> targets = {2, 0};

  double minus_log_p(int row, int target) const {
    double sum = 0;
    for (int v = 0; v < 3; ++v) sum += std::exp(logits[row * 4 + v]);
    return -std::log(std::exp(logits[row * 4 + target]) / sum);
  }
  double loss() const { return (minus_log_p(0, 2) + minus_log_p(1, 0)) / 2; }
  // For a dloss of 5.
  Values gradient() const {
    Values gradient;
    for (int row = 0; row < 2; ++row) {
      for (int v = 0; v < 3; ++v)
        gradient.push_back(5.0 / 2 * (std::exp(-minus_log_p(row, v)) - (v == targets[row] ? 1 : 0)));
      gradient.push_back(0);
    }
    return gradient;
  }
};

TEST_F(Definition, cross_entropy_is_the_mean_of_minus_the_logarithm_of_the_targets_probability) {
  const SmallCrossEntropy small;
  const Tensor loss = empty({1}), lse = empty({2});
  backend_->run(CrossEntropyForward{loss, lse, tensor({2, 4}, small.logits),
                                    to_tensor(*backend_, {2}, small.targets), 3});
  expect_values(loss, {small.loss()}, 3);
}

TEST_F(Definition, cross_entropy_has_the_gradient_of_a_mean_and_none_in_the_padding) {
  const SmallCrossEntropy small;
  const Tensor loss = empty({1}), dlogits = empty({2, 4}), rows = empty({2}),
               logits = tensor({2, 4}, small.logits), targets = to_tensor(*backend_, {2}, small.targets);
  backend_->run(CrossEntropyForwardBackward{loss, dlogits, rows, tensor({1}, {5}), logits, targets, 3});
  expect_values(loss, {small.loss()}, 3);
  expect_values(dlogits, small.gradient(), 3);
  backend_->run(CrossEntropyForward{loss, rows, logits, targets, 3});
  backend_->run(CrossEntropyBackward{dlogits, tensor({1}, {5}), logits, rows, targets, 3});
  expect_values(dlogits, small.gradient(), 3);
}

TEST_F(Definition, cross_entropy_has_a_gradient_that_may_overwrite_the_logits) {
  const SmallCrossEntropy small;
  const Tensor loss = empty({1}), rows = empty({2}), targets = to_tensor(*backend_, {2}, small.targets),
               logits = tensor({2, 4}, small.logits), others = tensor({2, 4}, small.logits);
  backend_->run(CrossEntropyForward{loss, rows, logits, targets, 3});
  backend_->run(CrossEntropyBackward{logits, tensor({1}, {5}), logits, rows, targets, 3});
  expect_values(logits, small.gradient(), 3);
  backend_->run(CrossEntropyForwardBackward{loss, others, rows, tensor({1}, {5}), others, targets, 3});
  expect_values(others, small.gradient(), 3);
}

// Logits of which exp(710) is more than f64 holds, and exp(-746) less. A padding column is no logit, though
// it is larger than all of them.
class DefinitionOfLargeLogits : public Definition {
 protected:
  static constexpr std::int64_t kK =
      3000 * 3000;  // differences of numbers up to 3000: √kK times the error of 1

  const Tensor logits_ = tensor({2, 4}, {1000, 999, -1000, 1e6, -3000, -3000, -3001, 1e6});
  const Tensor targets_ = to_tensor(*backend_, {2}, {1, 0});
  const double first_ = std::log(1 + std::exp(-1.0)), second_ = std::log(2 + std::exp(-1.0));
  const Values lse_ = {1000 + first_, -3000 + second_};
};

TEST_F(DefinitionOfLargeLogits, cross_entropy) {
  const Tensor loss = empty({1}), lse = empty({2});
  backend_->run(CrossEntropyForward{loss, lse, logits_, targets_, 3});
  expect_values(lse, lse_, 3);
  expect_values(loss, {(1 + first_ + second_) / 2}, kK);
}

TEST_F(DefinitionOfLargeLogits, gradient) {
  const Tensor dlogits = empty({2, 4});
  backend_->run(CrossEntropyBackward{dlogits, tensor({1}, {2}), logits_, tensor({2}, lse_), targets_, 3});
  const double p = std::exp(-first_), q = std::exp(-second_);
  expect_values(dlogits, {p, -p, 0, 0, q - 1, q, 1 - 2 * q, 0}, kK);
}

// One element of the output of attention: sequence b, head h, query t, channel i of the head. Keys after the
// query have the weight 0.
double attended(const Values& qkv, std::int64_t T, std::int64_t NH, std::int64_t HS, std::int64_t b,
                std::int64_t h, std::int64_t t, std::int64_t i, double scale, const Dropout& dropout) {
  const std::int64_t C = NH * HS;
  auto at = [&](std::int64_t time, std::int64_t part, std::int64_t element) {
    return qkv[((b * T + time) * 3 + part) * C + h * HS + element];  // part: 0 queries, 1 keys, 2 values
  };
  double denominator = 0, numerator = 0;
  for (std::int64_t s = 0; s < T; ++s) {
    double score = 0;
    for (std::int64_t j = 0; j < HS; ++j) score += at(t, 0, j) * at(s, 1, j);
    const double weight = s > t ? 0 : std::exp(scale * score);
    const std::int64_t place = ((b * NH + h) * T + t) * T + s;
    const bool kept = random_uniform(dropout.key, dropout.first_element + place) >= dropout.p;
    denominator += weight;
    numerator += kept ? weight / (1 - dropout.p) * at(s, 2, i) : 0;
  }
  return numerator / denominator;
}

TEST_F(Definition, attention_is_causal_scaled_and_over_packed_heads) {
  constexpr std::int64_t kB = 2, kT = 5, kHeads = 3, kHeadSize = 4, kC = kHeads * kHeadSize;
  constexpr double kScale = 0.7;
  const Values qkv = random_values(1, 0, kB * kT * 3 * kC);
  const Tensor out = empty({kB, kT, kC}), lse = empty({kB, kHeads, kT});
  for (const Dropout& dropout : {Dropout{}, Dropout{0.25, {1, 2, 3}, 77}}) {
    backend_->run(AttentionForward{out, lse, tensor({kB, kT, 3 * kC}, qkv), kHeads, kScale, dropout});
    Values expected;
    for (std::int64_t b = 0; b < kB; ++b) {
      for (std::int64_t t = 0; t < kT; ++t) {
        for (std::int64_t c = 0; c < kC; ++c) {
          expected.push_back(
              attended(qkv, kT, kHeads, kHeadSize, b, c / kHeadSize, t, c % kHeadSize, kScale, dropout));
        }
      }
    }
    expect_values(out, expected, kT * kHeadSize);
  }
}

TEST_F(Definition, attention_takes_scores_of_any_size) {
  constexpr double kScale = 100;
  const Tensor out = empty({1, 3, 1}), lse = empty({1, 1, 3});  // q, k and v of three tokens of one channel
  backend_->run(
      AttentionForward{out, lse, tensor({1, 3, 3}, {1, -20, 5, 2, 10, 7, 1, 9.99, 3}), 1, kScale, {}});
  const double p = 1 / (1 + std::exp(-1.0));  // the last query has the scores -2000, 1000 and 999
  expect_values(out, {5, 7, 7 * p + 3 * (1 - p)}, 1000 * 1000);
  expect_values(lse, {-2000, 2000, 1000 - std::log(p)}, 1000);
}

// Expects that backward(mode) adds to what the gradient holds if it accumulates, and overwrites it otherwise.
template <class Backward>
void expect_both_modes(Backend& backend, const Tensor& grad, const Backward& backward) {
  backend.fill(grad, 1000);
  backward(Grad{grad, GradMode::overwrite});
  Values sum = to_values(backend, grad);
  for (double& value : sum) value += 32;
  backend.fill(grad, 32);
  backward(Grad{grad, GradMode::accumulate});
  const Values got = to_values(backend, grad);
  EXPECT_LE(relative_error(got, sum), 1e-14)
      << "a gradient that accumulates, from 32 on: " << describe_difference(got, sum, grad.shape(), 1e-14);
}

TEST_F(Definition, layernorm_adds_to_gradients_that_accumulate) {
  const Tensor x = tensor({3, 5}, random_values(1, 0, 15)), w = tensor({5}, random_values(1, 1, 5)),
               dout = tensor({3, 5}, random_values(1, 2, 15)), out = empty({3, 5}), mean = empty({3}),
               rstd = empty({3});
  backend_->run(LayernormForward{out, mean, rstd, x, w, w, 1e-5});
  expect_both_modes(*backend_, empty({3, 5}), [&](const Grad& dx) {
    backend_->run(LayernormBackward{dx, {}, {}, dout, x, w, mean, rstd});
  });
  expect_both_modes(*backend_, empty({5}), [&](const Grad& dw) {
    backend_->run(LayernormBackward{{}, dw, {}, dout, x, w, mean, rstd});
  });
  expect_both_modes(*backend_, empty({5}), [&](const Grad& dbias) {
    backend_->run(LayernormBackward{{}, {}, dbias, dout, x, w, mean, rstd});
  });
}

// The vectorised backend calls it from several threads, each with channels of its own.
TEST_F(Definition, layernorm_adds_to_the_gradients_of_a_range_of_channels) {
  const Values dout = {1, 2, 3, 4, 5, 6}, x = {1, 2, 4, 3, 5, 8}, mean = {1, 3}, rstd = {1, 0.5};
  Values dw = {10, 20, 30}, dbias = {40, 50, 60};
  naive::layernorm_backward_parameters(dw.data(), dbias.data(), dout.data(), x.data(), mean.data(),
                                       rstd.data(), 2, 3, 1, 2);
  EXPECT_EQ(dw, (Values{10, 20 + 2 * (2 - 1) + 5 * (5 - 3) / 2.0, 30}));
  EXPECT_EQ(dbias, (Values{40, 50 + 2 + 5, 60}));
}

TEST_F(Definition, attention_adds_to_gradients_that_accumulate) {
  const Tensor qkv = tensor({2, 4, 3 * 6}, random_values(1, 0, 144)), out = empty({2, 4, 6}),
               lse = empty({2, 2, 4}), dout = tensor({2, 4, 6}, random_values(1, 1, 48));
  backend_->run(AttentionForward{out, lse, qkv, 2, 0.5, {}});
  expect_both_modes(*backend_, empty({2, 4, 3 * 6}), [&](const Grad& dqkv) {
    backend_->run(AttentionBackward{dqkv, dout, out, lse, qkv, 2, 0.5, {}});
  });
}

}  // namespace
}  // namespace stagegpt::test
