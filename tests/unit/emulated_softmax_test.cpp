// The causal softmax of materialised attention (softmax.cuh) alone, on the emulator in every order of
// threads, compared with the formulas in f64.
#include <algorithm>
#include <cmath>

#include "stage2_cuda/kernels/softmax.cuh"
#include "tests/emulation/emulated.h"
#include "tests/support/difference.h"
#include "tests/support/tolerance.h"

namespace stagegpt::test {
namespace {

using namespace gpu;

class CausalSoftmax : public InEveryOrder {};
INSTANTIATE_TEST_SUITE_P(Orders, CausalSoftmax, kOrders, order_name);

constexpr float kBehind = 1024;  // in elements that no kernel may write
constexpr std::int64_t kHeadSize = 6;

struct Square {
  std::int64_t heads, T;
  double spread = 1;  // standard deviation of the scores
  Dropout dropout = {};
  std::int64_t first = 0;

  std::int64_t rows() const { return heads * T; }
  std::int64_t numel() const { return rows() * T; }
  // The dropout factor of element u of a row.
  double factor(std::int64_t row, std::int64_t u) const {
    const auto i = static_cast<std::uint64_t>(dropout.first_element + (first + row) * T + u);
    if (dropout.p == 0) return 1;
    return random_uniform(dropout.key, i) >= dropout.p ? 1 / (1 - dropout.p) : 0;
  }
};

std::vector<float> with_one_behind(const Values& values) {
  std::vector<float> floats(values.begin(), values.end());
  floats.push_back(kBehind);
  return floats;
}

void expect_values(const char* what, const DeviceArray<float>& got, const Values& want, const Shape& shape) {
  const std::vector<float> all = got.values();
  const Values values(all.begin(), all.end() - 1);
  const double limit = error_limit(0, shape[-1] + kHeadSize, DType::f32);
  EXPECT_LE(relative_error(values, want), limit)
      << what << ": " << describe_difference(values, want, shape, limit);
  EXPECT_EQ(all.back(), kBehind) << what << ": written behind the last element";
}

// log Σ exp(score[u]) over u <= t.
double lse_of(const double* score, std::int64_t t) {
  const double max = *std::max_element(score, score + t + 1);
  double sum = 0;
  for (std::int64_t u = 0; u <= t; ++u) sum += std::exp(score[u] - max);
  return max + std::log(sum);
}

std::vector<Square> squares() {
  const Dropout dropout{0.3, {1, 2, 3}, 8};
  return {{1, 1}, {2, 5}, {3, 33}, {1, 70}, {2, 68, 1, dropout, 136}, {2, 35, 1, dropout, 70}};
}

void forward(const Square& s) {
  const Values scores = random_values(3, 0, s.numel(), s.spread);
  Values want(scores.size()), lse;
  for (std::int64_t row = 0; row < s.rows(); ++row) {
    const std::int64_t t = row % s.T;
    lse.push_back(lse_of(scores.data() + row * s.T, t));
    for (std::int64_t u = 0; u <= t; ++u) {
      const auto i = static_cast<std::size_t>(row * s.T + u);
      want[i] = s.factor(row, u) * std::exp(scores[i] - lse.back());
    }
  }
  const DeviceArray<float> in_place(with_one_behind(scores)), lses(with_one_behind(lse));
  const DropoutArgument dropout(s.dropout);
  const SoftmaxRows rows{s.heads, s.T, s.first};
  by_vector(in_place.data(), dropout, rows, [&]<int V>() {
    launch<softmax_forward_kernel<V>>(blocks(s.rows(), kThreads / kWarp), dim3(kThreads), 0, nullptr,
                                      in_place.data(), lses.data(), dropout, rows);
  });
  expect_values("f·p", in_place, want, {s.heads, s.T, s.T});
  expect_values("lse", lses, lse, {s.heads, s.T});
}

TEST_P(CausalSoftmax, forward_is_that_of_the_keys_up_to_t) {
  for (const Square& s : squares()) forward(s);
}

// The largest f32 is exp(88.7): without the maximum, the exponentials are infinite.
TEST_P(CausalSoftmax, forward_takes_large_scores) {
  forward({2, 36, 100});
  forward({2, 35, 100});
}

void backward(const Square& s) {
  constexpr double kScale = 0.7;
  const Values scores = random_values(3, 0, s.numel(), s.spread), dp = random_values(3, 1, s.numel()),
               out = random_values(3, 2, s.rows() * kHeadSize),
               dout = random_values(3, 3, s.rows() * kHeadSize);
  Values weights(scores.size()), ds(scores.size()), lse;
  for (std::int64_t row = 0; row < s.rows(); ++row) {
    const std::int64_t t = row % s.T, begin = (t * s.heads + row / s.T) * kHeadSize;
    lse.push_back(static_cast<float>(lse_of(scores.data() + row * s.T, t)));  // the kernel's input
    double D = 0;
    for (std::int64_t i = begin; i < begin + kHeadSize; ++i)
      D += dout[static_cast<std::size_t>(i)] * out[static_cast<std::size_t>(i)];
    for (std::int64_t u = 0; u <= t; ++u) {
      const auto i = static_cast<std::size_t>(row * s.T + u);
      const double p = std::exp(scores[i] - lse.back());
      weights[i] = s.factor(row, u) * p;
      ds[i] = kScale * p * (s.factor(row, u) * dp[i] - D);
    }
  }
  const DeviceArray<float> in_place(with_one_behind(scores)), d(with_one_behind(dp)),
      lses(with_one_behind(lse)), y(with_one_behind(out)), dy(with_one_behind(dout));
  const DropoutArgument dropout(s.dropout);
  const SoftmaxRows rows{s.heads, s.T, s.first};
  by_vector(in_place.data(), dropout, rows, [&]<int V>() {
    launch<softmax_backward_kernel<V>>(blocks(s.rows(), kThreads / kWarp), dim3(kThreads), 0, nullptr,
                                       in_place.data(), d.data(), lses.data(), y.data(), dy.data(),
                                       static_cast<float>(kScale), dropout, rows,
                                       HeadRows{s.heads, kHeadSize});
  });
  expect_values("f·p", in_place, weights, {s.heads, s.T, s.T});
  expect_values("ds", d, ds, {s.heads, s.T, s.T});
}

TEST_P(CausalSoftmax, backward_is_that_of_the_keys_up_to_t) {
  for (const Square& s : squares()) backward(s);
}

}  // namespace
}  // namespace stagegpt::test
