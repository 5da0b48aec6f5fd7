#include "common/profile/peak.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "common/autograd/ops/linear.h"
#include "common/base/error.h"
#include "common/base/seconds_since.h"
#include "common/comm/agreement.h"
#include "common/random/philox.h"

namespace stagegpt {
namespace {

// Shortest time of a product of (n,n) matrices, in seconds.
double product_seconds(Backend& backend, std::int64_t n, GemmEffort effort) {
  const Tensor a = random_tensor(backend, {n, n}), b = random_tensor(backend, {n, n});
  const Tensor out = backend.allocate(DType::f32, {n, n});
  double best = 0;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < effort.tries || seconds_since(begin) < effort.seconds; ++i) {
    backend.synchronize();
    const auto start = std::chrono::steady_clock::now();
    backend.run(LinearForward{out, a, b, Tensor()});
    backend.synchronize();
    const double seconds = seconds_since(start);
    best = i == 0 ? seconds : std::min(best, seconds);
  }
  return best;
}

std::int64_t smallest_affordable(Backend& backend, GemmEffort effort) {
  constexpr std::int64_t kProbe = 64;
  if (effort.affordable == 0) return effort.smallest;
  const double probe = product_seconds(backend, kProbe, {.tries = 5});
  const auto expected = [&](std::int64_t n) { return probe * std::pow(static_cast<double>(n) / kProbe, 3); };
  std::int64_t n = effort.smallest;
  while (n > kProbe && expected(n) > effort.affordable) n /= 2;
  return n;
}

}  // namespace

Tensor random_tensor(Backend& backend, Shape shape, std::uint32_t which) {
  constexpr std::size_t kPeriod = 1 << 16;
  std::vector<float> values(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = i < kPeriod ? random_uniform({.step = which}, i) - 0.5f : values[i - kPeriod];
  }
  return to_device<float>(backend, shape, values);
}

Peak measure_peak(Backend& backend, GemmEffort effort) {
  constexpr std::int64_t kLargest = 8192;  // 0.8 GB
  Peak peak;
  double seconds = 0;
  for (std::int64_t n = smallest_affordable(backend, effort); n <= kLargest && seconds < effort.long_enough;
       n *= 2) {
    seconds = product_seconds(backend, n, effort);
    const double rate = 2.0 * static_cast<double>(n * n * n) / seconds;
    if (rate > peak.flops_per_second) peak = {rate, concat("measured GEMM ", n)};
  }
  return peak;
}

double peak_of_all_ranks(RankGroup& group, Backend& backend, const std::optional<Peak>& known) {
  const Peak own = known ? *known : measure_peak(backend, kQuickGemm);
  const std::vector<double> all = gather(group, own.flops_per_second);
  return std::accumulate(all.begin(), all.end(), 0.0);
}

}  // namespace stagegpt
