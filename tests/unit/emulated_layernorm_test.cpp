// Each version of the layernorm ladder alone, on the emulator in every order of threads, compared with the
// formula in f64.
#include <cmath>

#include "stage2_cuda/kernels/layernorm_ladder.cuh"
#include "tests/emulation/emulated.h"
#include "tests/support/difference.h"
#include "tests/support/tolerance.h"

namespace stagegpt::test {
namespace {

using namespace gpu;

class LayernormVersions : public InEveryOrder {};
INSTANTIATE_TEST_SUITE_P(Orders, LayernormVersions, kOrders, order_name);

constexpr double kSmallEps = 1e-5;
constexpr float kUntouched = 1024;  // in the row behind the last one, which no version may write

struct Rows {
  std::int64_t N, C;
  double mean = 0;
};

struct Normalised {
  Values out, mean, rstd;
};

Normalised layernorm_in_f64(const Values& x, const Values& w, const Values& bias, const Rows& rows) {
  Normalised result;
  for (std::int64_t n = 0; n < rows.N; ++n) {
    const double* row = x.data() + n * rows.C;
    double mean = 0, squares = 0;
    for (std::int64_t c = 0; c < rows.C; ++c) mean += row[c] / static_cast<double>(rows.C);
    for (std::int64_t c = 0; c < rows.C; ++c) squares += (row[c] - mean) * (row[c] - mean);
    const double rstd = 1 / std::sqrt(squares / static_cast<double>(rows.C) + kSmallEps);
    for (std::int64_t c = 0; c < rows.C; ++c) {
      const auto i = static_cast<std::size_t>(c);
      result.out.push_back((row[c] - mean) * rstd * w[i] + bias[i]);
    }
    result.mean.push_back(mean);
    result.rstd.push_back(rstd);
  }
  return result;
}

std::vector<float> floats(const Values& values) { return {values.begin(), values.end()}; }

// A device array of n elements and some behind them.
DeviceArray<float> with_more_behind(std::int64_t n, std::int64_t behind) {
  return DeviceArray<float>(std::vector<float>(static_cast<std::size_t>(n + behind), kUntouched));
}

void expect_values(const char* what, const DeviceArray<float>& got, const Values& want, const Shape& shape,
                   double limit, const Rows& rows) {
  const std::vector<float> all = got.values();
  const auto end = all.begin() + static_cast<std::ptrdiff_t>(want.size());
  const Values values(all.begin(), end);
  EXPECT_LE(relative_error(values, want), limit)
      << what << " of " << rows.N << " rows of " << rows.C
      << " channels: " << describe_difference(values, want, shape, limit);
  EXPECT_EQ(std::vector<float>(end, all.end()),
            std::vector<float>(static_cast<std::size_t>(all.end() - end), kUntouched))
      << what << " of " << rows.N << " rows: written behind the last one";
}

using Version = void (*)(StreamHandle, const LayernormCall&);

void expect_layernorm(Version version, const std::vector<Rows>& all_rows) {
  for (const Rows& rows : all_rows) {
    const auto [N, C, mean] = rows;
    const Values x = random_values(1, 0, N * C, 1, mean), w = random_values(1, 1, C, 0.5, 1),
                 bias = random_values(1, 2, C);
    const Normalised want = layernorm_in_f64(x, w, bias, rows);
    const DeviceArray<float> in(floats(x)), weight(floats(w)), offset(floats(bias)),
        out = with_more_behind(N * C, C), means = with_more_behind(N, 1), rstds = with_more_behind(N, 1);
    version(nullptr, {out.data(), means.data(), rstds.data(), in.data(), weight.data(), offset.data(),
                      static_cast<float>(kSmallEps), N, C});
    // The mean is rounded to f32, and its error is that of each x - mean.
    const double limit = error_limit(0, C, DType::f32) * (1 + std::abs(mean));
    expect_values("out", out, want.out, {N, C}, limit, rows);
    expect_values("mean", means, want.mean, {N}, limit, rows);
    expect_values("rstd", rstds, want.rstd, {N}, limit, rows);
  }
}

// 33 rows: one more than a block of v1 has threads. 9: one more than a block of v3 and v4 has warps.
const std::vector<Rows> kRowsOfVectors = {{1, 4}, {9, 32}, {33, 128}, {3, 132}, {2, 300}, {5, 48, 50}};
const std::vector<Rows> kAnyRows = {{1, 1}, {9, 31}, {33, 7}, {3, 130}, {2, 301}, {5, 48, 50}};

TEST_P(LayernormVersions, v1_has_a_thread_per_row) { expect_layernorm(layernorm_v1, kAnyRows); }
TEST_P(LayernormVersions, v2_has_a_block_per_row) { expect_layernorm(layernorm_v2, kAnyRows); }
TEST_P(LayernormVersions, v3_has_a_warp_per_row) { expect_layernorm(layernorm_warps<1>, kAnyRows); }
TEST_P(LayernormVersions, v4_has_four_floats_at_a_time) {
  expect_layernorm(layernorm_warps<4>, kRowsOfVectors);
}

}  // namespace
}  // namespace stagegpt::test
