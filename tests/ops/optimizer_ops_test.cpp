// AdamW and the squared norm on every backend.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>

#include "common/backend/ops/adamw.h"
#include "common/backend/ops/elementwise.h"
#include "common/backend/ops/sums.h"
#include "common/optim/adamw.h"
#include "stage0_serial/naive_backend.h"
#include "tests/support/backends.h"
#include "tests/support/tensors.h"
#include "tests/support/tolerance.h"

namespace stagegpt::test {
namespace {

struct Target {
  const BackendUnderTest* backend;
  DType dtype;
};

std::vector<Target> targets() {
  std::vector<Target> targets;
  for (const BackendUnderTest& backend : backends_under_test()) {
    if (!backend.has_own_kernels()) continue;
    for (const DType dtype : backend.dtypes) {
      if (dtype != DType::bf16) targets.push_back({&backend, dtype});  // the optimizer's arenas are not bf16
    }
  }
  return targets;
}

std::ostream& operator<<(std::ostream& out, const Target& target) {
  return out << target.backend->name << '_' << target.dtype;
}
std::string test_name(const testing::TestParamInfo<Target>& info) { return concat(info.param); }

// Two ranges, each followed by a gap. Each is longer than a thread's part (16,384 elements), and its length
// is not a multiple of a vector's length.
constexpr std::int64_t kSize = 40000;
const std::vector<DecayRange> kRanges = {{0, 20001, 0.1}, {20064, 39777, 0}};
constexpr int kSteps = 5;

AdamWStep step_number(int t, double max_grad_norm) {
  return {.learning_rate = 0.01,
          .beta1 = 0.9,
          .beta2 = 0.95,
          .eps = 1e-8,
          .step = t,
          .max_grad_norm = max_grad_norm};
}

double squared_norm_of(const Values& x) {
  long double sum = 0;
  for (const long double value : x) sum += value * value;
  return static_cast<double>(sum);
}

Values gradient(int t) { return random_values(1, static_cast<std::uint32_t>(t), kSize, 0.1); }
Values initial_weights() { return random_values(1, 0, kSize); }

struct Arenas {
  Values w, m, v;
};

// AdamW as published (Loshchilov and Hutter, algorithm 2), with gradient clipping, in f64.
void printed_adamw(Arenas& a, const Values& g, const AdamWStep& s) {
  const double norm = std::sqrt(squared_norm_of(g));
  const double scale = s.max_grad_norm > 0 ? std::min(1.0, s.max_grad_norm / (norm + 1e-6)) : 1;
  for (const DecayRange& range : kRanges) {
    for (std::int64_t i = range.begin; i < range.end; ++i) {
      const double grad = scale * g[i];
      a.m[i] = s.beta1 * a.m[i] + (1 - s.beta1) * grad;
      a.v[i] = s.beta2 * a.v[i] + (1 - s.beta2) * grad * grad;
      const double m_hat = a.m[i] / (1 - std::pow(s.beta1, s.step));
      const double v_hat = a.v[i] / (1 - std::pow(s.beta2, s.step));
      a.w[i] -= s.learning_rate * (m_hat / (std::sqrt(v_hat) + s.eps) + range.weight_decay * a.w[i]);
    }
  }
}

class OptimizerOps : public testing::TestWithParam<Target> {
 protected:
  // The weights and moments after `steps` steps on a backend.
  Arenas train(Backend& backend, int steps, double max_grad_norm) const {
    const DType dtype = GetParam().dtype;
    const Tensor w = to_tensor(backend, dtype, {kSize}, initial_weights());
    const Tensor m = backend.zeros(dtype, {kSize}), v = backend.zeros(dtype, {kSize});
    const Tensor norm = backend.allocate(DType::f64, {1});
    for (int t = 1; t <= steps; ++t) {
      const Tensor g = to_tensor(backend, dtype, {kSize}, gradient(t));
      backend.run(SquaredNorm{norm, g});
      backend.run(AdamWUpdate{w, {}, m, v, g, norm, kRanges, step_number(t, max_grad_norm)});
    }
    return {to_values(backend, w), to_values(backend, m), to_values(backend, v)};
  }

  void expect_printed_algorithm(double max_grad_norm) {
    Arenas expected{initial_weights(), Values(kSize), Values(kSize)};
    for (int t = 1; t <= kSteps; ++t) printed_adamw(expected, gradient(t), step_number(t, max_grad_norm));
    const Arenas plain = train(*naive_, kSteps, max_grad_norm), got = train(*backend_, kSteps, max_grad_norm);
    auto expect_close = [&](Values Arenas::*arena, const char* name) {
      const double plain_error = relative_error(plain.*arena, expected.*arena);
      EXPECT_LE(relative_error(got.*arena, expected.*arena),
                error_limit(plain_error, kSteps, GetParam().dtype))
          << name;
      EXPECT_LE(plain_error, error_limit(0, kSteps, GetParam().dtype)) << name << " of the plain kernel";
    };
    expect_close(&Arenas::w, "weights");
    expect_close(&Arenas::m, "first moment");
    expect_close(&Arenas::v, "second moment");
  }

  const std::unique_ptr<Backend> naive_ = make_naive_backend();
  const std::unique_ptr<Backend> backend_ = GetParam().backend->make();
};

TEST_P(OptimizerOps, adamw_follows_the_printed_algorithm) { expect_printed_algorithm(0); }

TEST_P(OptimizerOps, adamw_clips_to_the_norm) { expect_printed_algorithm(1); }

TEST_P(OptimizerOps, adamw_does_not_scale_up_small_gradients) { expect_printed_algorithm(1e6); }

TEST_P(OptimizerOps, adamw_leaves_gaps_between_ranges) {
  const Arenas got = train(*backend_, 2, 0);
  const Values start = initial_weights();
  for (const std::int64_t i : {20001, 20063, 39777, 39999}) {
    EXPECT_EQ(got.w[i], start[i]) << i;
    EXPECT_EQ(got.m[i], 0) << i;
    EXPECT_EQ(got.v[i], 0) << i;
  }
  for (const std::int64_t i : {0, 20000, 20064, 39776}) EXPECT_NE(got.w[i], start[i]) << i;
}

TEST_P(OptimizerOps, adamw_ignores_a_step_whose_norm_is_not_finite) {
  Backend& be = *backend_;
  const DType dtype = GetParam().dtype;
  const Tensor w = to_tensor(be, dtype, {kSize}, initial_weights());
  const Tensor m = to_tensor(be, dtype, {kSize}, gradient(1)), v = to_tensor(be, dtype, {kSize}, gradient(2));
  const Tensor g = to_tensor(be, dtype, {kSize}, gradient(3)), norm = be.allocate(DType::f64, {1});
  for (const double bad :
       {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    for (const double max_grad_norm : {0.0, 1.0}) {
      be.fill(norm, bad);
      be.run(AdamWUpdate{w, {}, m, v, g, norm, kRanges, step_number(1, max_grad_norm)});
      EXPECT_EQ(to_values(be, w), initial_weights());
      EXPECT_EQ(to_values(be, m), gradient(1));
      EXPECT_EQ(to_values(be, v), gradient(2));
    }
  }
}

// A shadow has the bits of a cast of the weights in all ranges, and its old ones elsewhere and after a step
// whose norm is not finite. The arenas begin at an offset: aligned for vectors, for vectors of the weights
// alone, and not aligned.
TEST_P(OptimizerOps, adamw_writes_the_shadow) {
  if (GetParam().dtype != DType::f32) return;
  Backend& be = *backend_;
  for (const std::int64_t offset : {0, 4, 1}) {
    const auto arena = [&](DType dtype) { return be.zeros(dtype, {kSize + offset}).slice(offset, {kSize}); };
    const Tensor w = arena(DType::f32), m = arena(DType::f32), v = arena(DType::f32), g = arena(DType::f32),
                 shadow = arena(DType::bf16), rounded = be.allocate(DType::bf16, {kSize}),
                 norm = be.allocate(DType::f64, {1});
    set_values(be, w, initial_weights());
    set_values(be, g, gradient(1));
    be.fill(shadow, 7);
    be.run(SquaredNorm{norm, g});
    be.run(AdamWUpdate{w, shadow, m, v, g, norm, kRanges, step_number(1, 1)});
    be.run(Cast{rounded, w});
    const Values got = to_values(be, shadow), expected = to_values(be, rounded);
    for (std::int64_t i = 0; i < kSize; ++i) {
      const bool in_range = i < kRanges[0].end || (i >= kRanges[1].begin && i < kRanges[1].end);
      ASSERT_EQ(got[i], in_range ? expected[i] : 7) << i << " at offset " << offset;
    }
    be.fill(shadow, 7);
    be.fill(norm, std::numeric_limits<double>::quiet_NaN());
    be.run(AdamWUpdate{w, shadow, m, v, g, norm, kRanges, step_number(2, 1)});
    EXPECT_EQ(to_values(be, shadow), Values(kSize, 7));
  }
}

// As a training calls it: the rates are in the backend's memory, and those of the call are not read.
TEST_P(OptimizerOps, adamw_reads_its_rates_when_it_runs) {
  const Tensor rates = backend_->allocate(DType::f64, {3}), norm = backend_->allocate(DType::f64, {1});
  const auto updated = [&](const AdamWStep& called) {
    const auto arena = [&](const Values& values) {
      return to_tensor(*backend_, GetParam().dtype, {kSize}, values);
    };
    const Tensor w = arena(initial_weights()), m = arena(gradient(2)), v = arena(Values(kSize, 0.01)),
                 g = arena(gradient(1));
    backend_->run(SquaredNorm{norm, g});
    backend_->run(AdamWUpdate{w, {}, m, v, g, norm, kRanges, called});
    return to_values(*backend_, w);
  };
  AdamWStep elsewhere = step_number(1, 1);
  elsewhere.learning_rate = 100;
  elsewhere.rates = rates;
  for (const int t : {3, 40}) {
    const AdamWRates now = step_number(t, 1).host_rates();
    upload<double>(*backend_, rates, std::array{now.learning_rate, now.step_size, now.inv_sqrt_correction2});
    EXPECT_EQ(updated(elsewhere), updated(step_number(t, 1))) << t;
  }
}

// The arenas begin one element behind the beginning of a block of memory.
TEST_P(OptimizerOps, adamw_takes_arenas_that_are_not_aligned) {
  const DType dtype = GetParam().dtype;
  const auto shifted = [&](Values values) {
    values.insert(values.begin(), 0);
    return to_tensor(*backend_, dtype, {kSize + 1}, values).slice(1, {kSize});
  };
  const Tensor w = shifted(initial_weights()), m = shifted(Values(kSize)), v = shifted(Values(kSize)),
               g = shifted(gradient(1)), norm = backend_->allocate(DType::f64, {1});
  backend_->run(SquaredNorm{norm, g});
  backend_->run(AdamWUpdate{w, {}, m, v, g, norm, kRanges, step_number(1, 1)});
  const Arenas aligned = train(*backend_, 1, 1);
  const double limit = error_limit(0, 1, dtype);
  EXPECT_LE(relative_error(to_values(*backend_, w), aligned.w), limit);
  EXPECT_LE(relative_error(to_values(*backend_, m), aligned.m), limit);
  EXPECT_LE(relative_error(to_values(*backend_, v), aligned.v), limit);
}

// A backend may add up to kRun squares in the dtype, but must add these partial sums in f64. So the error
// does not grow with n. Equal numbers are the hardest case, because all roundings go in the same direction.
TEST_P(OptimizerOps, squared_norm_adds_up_in_f64) {
  constexpr std::int64_t kRun = 256;
  const DType dtype = GetParam().dtype;
  for (const std::int64_t n : {std::int64_t{1}, std::int64_t{17}, kRun, kSize, std::int64_t{70001}}) {
    const double limit = std::max(error_limit(0, std::min(n, kRun), dtype), error_limit(0, n, DType::f64));
    for (const Values& x : {random_values(2, 0, n), Values(static_cast<std::size_t>(n), 0.1f)}) {
      const Tensor norm = backend_->allocate(DType::f64, {1});
      backend_->run(SquaredNorm{norm, to_tensor(*backend_, dtype, {n}, x)});
      EXPECT_LE(relative_error({to_value(*backend_, norm)}, {squared_norm_of(x)}), limit) << n;
    }
  }
}

// 2⁵³ + 1 - 2⁵³ + 1 is 1 from left to right, because 2⁵³ + 1 is rounded to 2⁵³. From right to left, and with
// the first and the third added first, it is 2.
TEST_P(OptimizerOps, sum_adds_in_order) {
  const Values x = {0x1p53, 1, -0x1p53, 1};
  const Tensor numbers = to_tensor(*backend_, DType::f64, {4}, x), out = backend_->allocate(DType::f64, {1});
  backend_->run(Sum{out, numbers});
  EXPECT_EQ(to_value(*backend_, out), 1);
  backend_->run(Sum{out, numbers.slice(1, {3})});
  EXPECT_EQ(to_value(*backend_, out), 2 - 0x1p53);
  backend_->run(Sum{out, numbers.slice(0, {0})});
  EXPECT_EQ(to_value(*backend_, out), 0);
  backend_->run(Sum{numbers.slice(0, {1}), numbers});
  EXPECT_EQ(to_values(*backend_, numbers), (Values{1, 1, -0x1p53, 1}));
}

TEST_P(OptimizerOps, squared_norm_shows_what_is_not_finite) {
  Values x = random_values(2, 0, kSize);
  x[kSize / 2] = std::numeric_limits<double>::infinity();
  const Tensor norm = backend_->allocate(DType::f64, {1});
  backend_->run(SquaredNorm{norm, to_tensor(*backend_, GetParam().dtype, {kSize}, x)});
  EXPECT_FALSE(std::isfinite(to_value(*backend_, norm)));
}

// The sum over all ranks stands where the norm of a rank's only part does.
TEST_P(OptimizerOps, the_norm_of_nothing_is_zero_in_every_step) {
  ParameterTable table;
  table.add({.name = "a", .shape = {64}, .padded_rows = 64});
  const Parameters parameters(*backend_, table, GetParam().dtype);
  AdamW optimizer(*backend_, parameters, {}, ArenaParts{{64, 64}});
  upload<double>(*backend_, optimizer.squared_norm(), std::array{7.0});
  optimizer.measure_norms(parameters);
  EXPECT_EQ(to_value(*backend_, optimizer.squared_norm()), 0);
}

INSTANTIATE_TEST_SUITE_P(Ops, OptimizerOps, testing::ValuesIn(targets()), test_name);

}  // namespace
}  // namespace stagegpt::test
