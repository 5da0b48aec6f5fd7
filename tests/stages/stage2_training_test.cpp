// Training on the CUDA backend, on a GPU or emulated, compared with stage 0.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include "stage0_serial/cpu_backend.h"
#include "tests/support/backends.h"
#include "tests/support/sanitized.h"
#include "tests/support/small_training.h"
#include "tests/support/tolerance.h"

namespace stagegpt::test {
namespace {

// Of three sequences in each of two micro-steps.
SmallTraining training(std::unique_ptr<Backend> backend, double dropout) {
  return {std::move(backend), small_config(3, 2), random_tokens(1000), dropout};
}

class Stage2Training : public testing::TestWithParam<BackendUnderTest> {};

// Loss and gradient norm of every step.
using Course = std::vector<std::array<double, 2>>;

// Stage 0's training. Before every step each weight is multiplied by 1 + `error` · a normal number.
Course course_of_stage0(double dropout, int steps, double error, std::uint64_t seed) {
  SmallTraining run = training(make_cpu_backend(1), dropout);
  const Tensor weights = run.model.parameters().weights();
  Course course;
  for (int step = 0; step < steps; ++step) {
    Values values = to_values(*run.backend, weights);
    const Values noise = random_values(seed, static_cast<std::uint32_t>(step), weights.numel(), error);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] *= 1 + noise[i];
    set_values(*run.backend, weights, values);
    const StepReport report = run.trainer.step();
    course.push_back({report.loss, report.grad_norm});
  }
  return course;
}

// How far a training with rounding errors of its own may be from stage 0's at each step: twice what errors of
// that size in all weights make of stage 0's own training. AdamW amplifies them step by step, so no constant
// would do for every processor.
Course allowed_differences(const Course& exact, double dropout, double rounding) {
  // Of the products: over the channels inside a block's MLP.
  const double longest_sum = 4.0 * SmallTraining::model_config(dropout).n_embd;
  const double error =
      kToleranceFactor * std::max(std::sqrt(longest_sum) * unit_roundoff(DType::f32), rounding);
  Course allowed(exact.size());
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const Course disturbed = course_of_stage0(dropout, static_cast<int>(exact.size()), error, seed);
    std::array<double, 2> largest = {};  // so far
    for (std::size_t step = 0; step < exact.size(); ++step) {
      for (std::size_t i = 0; i < 2; ++i) {
        largest[i] = std::max(largest[i], 2 * std::abs(disturbed[step][i] - exact[step][i]));
        allowed[step][i] = std::max(allowed[step][i], largest[i]);
      }
    }
  }
  return allowed;
}

TEST_P(Stage2Training, TrainsAsStage0) {
  constexpr int kSteps = kSanitized ? 3 : 20;
  for (const double dropout : {0.0, 0.2}) {
    const Course expected = course_of_stage0(dropout, kSteps, 0, 0);
    const Course allowed = allowed_differences(expected, dropout, GetParam().rounding);
    SmallTraining run = training(GetParam().make(), dropout);
    for (std::size_t step = 0; step < expected.size(); ++step) {
      const StepReport got = run.trainer.step();
      ASSERT_NEAR(got.loss, expected[step][0], allowed[step][0]) << "step " << step;
      ASSERT_NEAR(got.grad_norm, expected[step][1], allowed[step][1]) << "step " << step;
      // A limit that says nothing would be a mistake, too.
      ASSERT_LT(allowed[step][0], 0.1 * expected[step][0]);
    }
  }
}

TEST_P(Stage2Training, ASecondStepAsksTheDeviceForNoMemory) {
  SmallTraining run = training(GetParam().make(), 0.1);
  run.trainer.step();
  const std::int64_t after_one = run.backend->memory_stats().source_allocations;
  for (int step = 0; step < 3; ++step) run.trainer.step();
  EXPECT_EQ(run.backend->memory_stats().source_allocations, after_one);
}

TEST_P(Stage2Training, SameSeedSameBits) {
  SmallTraining a = training(GetParam().make(), 0.1), b = training(GetParam().make(), 0.1);
  for (int step = 0; step < 4; ++step) EXPECT_EQ(a.trainer.step().loss, b.trainer.step().loss);
  EXPECT_EQ(a.weights(), b.weights());
}

// The host runs ahead of the device, above all of streams that do their work late: by the host's clock nearly
// all of a step would be optimizer, at whose end it waits.
TEST_P(Stage2Training, PhasesAreTimesOfTheDevice) {
  SmallTraining run = training(GetParam().make(), 0);
  run.trainer.step();
  for (int step = 0; step < 3; ++step) {
    const PhaseSeconds seconds = run.trainer.step().seconds;
    EXPECT_GT(seconds.forward, 0);
    EXPECT_GT(seconds.forward + seconds.backward, seconds.optimizer);
    EXPECT_LT(seconds.communication, seconds.backward);
  }
}

// The device decides, and the host learns of it later.
TEST_P(Stage2Training, ANormThatIsNotFiniteSkipsTheUpdate) {
  SmallTraining run = training(GetParam().make(), 0);
  const Tensor weight = run.model.parameters().var("h.1.mlp.c_fc.weight").value();
  Values values = to_values(*run.backend, weight);
  values[7] = std::nan("");
  set_values(*run.backend, weight, values);
  const std::vector<float> before = run.weights();
  const StepReport report = run.trainer.step();
  EXPECT_TRUE(report.skipped());
  const std::vector<float> after = run.weights();
  for (std::size_t i = 0; i < before.size(); ++i) {
    ASSERT_TRUE(before[i] == after[i] || (std::isnan(before[i]) && std::isnan(after[i]))) << i;
  }
}

std::vector<BackendUnderTest> quick_backends() {
  std::vector<BackendUnderTest> backends = backends_under_test();
  std::erase_if(backends, std::mem_fn(&BackendUnderTest::slow));
  return backends;
}

INSTANTIATE_TEST_SUITE_P(Stage2, Stage2Training, testing::ValuesIn(quick_backends()),
                         [](const auto& backend) { return backend.param.name; });

}  // namespace
}  // namespace stagegpt::test
