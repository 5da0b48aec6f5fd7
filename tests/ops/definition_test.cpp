// The plain kernels in f64, compared with direct implementations of the ops' formulas. Central differences
// (gradient_check_test.cpp) show that backward matches forward. This test shows that forward is correct.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <numbers>

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
    backend_->activation_forward(out, tensor({101}, x), activation);
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
  backend_->embedding_forward(out, to_tensor(*backend_, {2, 3}, {3, 0, 3, 1, 1, 2}),
                              tensor({4, 1}, {10, 20, 30, 40}), tensor({5, 1}, {1, 2, 3, 4, 5}));
  EXPECT_EQ(to_values(*backend_, out), (Values{41, 12, 43, 21, 22, 33}));
}

TEST_F(Definition, linear_multiplies_by_the_transposed_weight) {
  const Tensor out = empty({2, 3});
  backend_->linear_forward(out, tensor({2, 2}, {1, 2, 3, 4}), tensor({3, 2}, {1, 0, 0, 1, 5, 6}),
                           tensor({3}, {100, 200, 300}));
  EXPECT_EQ(to_values(*backend_, out), (Values{101, 202, 317, 103, 204, 339}));
}

TEST_F(Definition, layernorm_uses_the_biased_variance_and_eps_under_the_root) {
  constexpr double kEps = 0.25;
  const Tensor out = empty({1, 4}), mean = empty({1}), rstd = empty({1});
  backend_->layernorm_forward(out, mean, rstd, tensor({1, 4}, {1, 2, 3, 6}), tensor({4}, {1, 2, 3, 4}),
                              tensor({4}, {5, 6, 7, 8}), kEps);
  const double r = 1 / std::sqrt((4 + 1 + 0 + 9) / 4.0 + kEps);  // squared deviations from the mean, 3
  expect_values(out, {5 - 2 * r, 6 - 2 * r, 7, 8 + 12 * r}, 4);
  expect_values(mean, {3}, 1);
  expect_values(rstd, {r}, 1);
}

TEST_F(Definition, cross_entropy_is_the_mean_of_minus_the_logarithm_of_the_targets_probability) {
  const Values logits = random_values(1, 0, 2 * 4);
  auto minus_log_p = [&](int row, int target) {
    double sum = 0;
    for (int v = 0; v < 3; ++v) sum += std::exp(logits[row * 4 + v]);
    return -std::log(std::exp(logits[row * 4 + target]) / sum);
  };
  const Tensor loss = empty({1}), lse = empty({2});
  backend_->cross_entropy_forward(loss, lse, tensor({2, 4}, logits), to_tensor(*backend_, {2}, {2, 0}), 3);
  expect_values(loss, {(minus_log_p(0, 2) + minus_log_p(1, 0)) / 2}, 3);

  const Tensor other = empty({1}), dlogits = empty({2, 4});
  backend_->cross_entropy_forward_backward(other, dlogits, lse, tensor({1}, {5}), tensor({2, 4}, logits),
                                           to_tensor(*backend_, {2}, {2, 0}), 3);
  expect_values(other, {(minus_log_p(0, 2) + minus_log_p(1, 0)) / 2}, 3);
  Values gradient;
  for (int row = 0; row < 2; ++row) {
    for (int v = 0; v < 3; ++v) {
      const int target = row == 0 ? 2 : 0;
      gradient.push_back(5.0 / 2 * (std::exp(-minus_log_p(row, v)) - (v == target ? 1 : 0)));
    }
    gradient.push_back(0);
  }
  expect_values(dlogits, gradient, 3);
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
    backend_->attention_forward(out, lse, tensor({kB, kT, 3 * kC}, qkv), kHeads, kScale, dropout);
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

}  // namespace
}  // namespace stagegpt::test
