// Training on the CUDA backend, on a GPU or emulated, compared with stage 0.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "stage0_serial/cpu_backend.h"
#include "tests/support/backends.h"
#include "tests/support/small_training.h"
#include "tests/support/tolerance.h"

namespace stagegpt::test {
namespace {

// A training with two micro-steps per step, of three sequences each.
SmallTraining training(std::unique_ptr<Backend> backend, double dropout, DType activations = DType::f32) {
  return {std::move(backend), small_config(3, 2), random_tokens(1000), dropout, activations};
}

class Stage2Training : public testing::TestWithParam<BackendUnderTest> {
 protected:
  SmallTraining tested(double dropout) const {
    return training(GetParam().make(), dropout, GetParam().dtypes[0]);
  }
};

// Loss and gradient norm of every step.
using Course = std::vector<std::array<double, 2>>;

// The course of stage 0's training. Before every step, each weight is multiplied by 1 + `error` · z, where z
// is a normally distributed random number.
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

// The largest allowed difference from stage 0's training, for each step. To find it, stage 0 trains again
// with random errors in all weights, of the size of a backend's rounding errors. The limit is twice the
// difference that these errors cause. AdamW amplifies errors from step to step, so no constant limit would
// suit every processor.
Course allowed_differences(const Course& exact, double dropout, double rounding) {
  // The number of terms: a sum over the 4C channels inside a block's MLP.
  const double longest_sum = 4.0 * SmallTraining::model_config(dropout).n_embd;
  const double error =
      kToleranceFactor * std::max(std::sqrt(longest_sum) * unit_roundoff(DType::f32), rounding);
  Course allowed(exact.size());
  constexpr std::uint64_t kSeeds = 3;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const Course disturbed = course_of_stage0(dropout, static_cast<int>(exact.size()), error, seed);
    std::array<double, 2> largest = {};  // over the steps so far
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
  constexpr int kSteps = 4;
  for (const double dropout : {0.0, 0.2}) {
    const Course expected = course_of_stage0(dropout, kSteps, 0, 0);
    const Course allowed = allowed_differences(expected, dropout, GetParam().rounding);
    SmallTraining run = tested(dropout);
    for (std::size_t step = 0; step < expected.size(); ++step) {
      const StepReport got = run.trainer.step();
      ASSERT_NEAR(got.loss, expected[step][0], allowed[step][0]) << "step " << step;
      ASSERT_NEAR(got.grad_norm, expected[step][1], allowed[step][1]) << "step " << step;
      // A very large limit would accept any training.
      ASSERT_LT(allowed[step][0], 0.1 * expected[step][0]);
    }
  }
}

TEST_P(Stage2Training, ASecondStepAsksTheDeviceForNoMemory) {
  SmallTraining run = tested(0.1);
  run.trainer.step();
  const std::int64_t after_one = run.backend->memory_stats().source_allocations;
  for (int step = 0; step < 2; ++step) run.trainer.step();
  EXPECT_EQ(run.backend->memory_stats().source_allocations, after_one);
}

TEST_P(Stage2Training, RecomputationChangesNoBit) {
  const auto training = [&](Recompute recompute) {
    TrainerConfig config = small_config(3, 2);
    config.recompute = recompute;
    return std::make_unique<SmallTraining>(GetParam().make(), config, random_tokens(1000), 0.1,
                                           GetParam().dtypes[0]);
  };
  const auto expected = training(Recompute::none);
  const std::array reports = {expected->trainer.step(), expected->trainer.step()};
  for (const Recompute recompute : {Recompute::gelu, Recompute::block}) {
    const auto run = training(recompute);
    std::int64_t allocations = 0;
    for (const StepReport& other : reports) {
      allocations = run->backend->memory_stats().source_allocations;
      const StepReport report = run->trainer.step();
      EXPECT_EQ(report.loss, other.loss) << name_of(recompute);
      EXPECT_EQ(report.grad_norm, other.grad_norm) << name_of(recompute);
    }
    EXPECT_EQ(run->backend->memory_stats().source_allocations, allocations) << "in a second step";
    EXPECT_EQ(run->grads() == expected->grads(), true) << name_of(recompute);
    EXPECT_EQ(run->weights() == expected->weights(), true) << name_of(recompute);
    EXPECT_LT(run->backend->memory_stats().peak_bytes_in_use,
              expected->backend->memory_stats().peak_bytes_in_use);
  }
}

TEST_P(Stage2Training, SameSeedSameBits) {
  SmallTraining a = tested(0.1), b = tested(0.1);
  constexpr int kSteps = 2;
  for (int step = 0; step < kSteps; ++step) EXPECT_EQ(a.trainer.step().loss, b.trainer.step().loss);
  EXPECT_EQ(a.weights(), b.weights());
}

// The host does not wait for the device's work, which late streams delay even more. The host waits only at
// the end of the optimizer phase. Measured with the host's clock, this phase would take nearly the whole
// step.
TEST_P(Stage2Training, PhasesAreTimesOfTheDevice) {
  SmallTraining run = tested(0);
  run.trainer.step();  // allocates memory
  const PhaseSeconds seconds = run.trainer.step().seconds;
  EXPECT_GT(seconds.forward, 0);
  EXPECT_GT(4 * (seconds.forward + seconds.backward), seconds.optimizer);
  EXPECT_LT(seconds.communication, seconds.backward);
}

// The device decides whether to skip the update. The host reads the decision later.
TEST_P(Stage2Training, ANormThatIsNotFiniteSkipsTheUpdate) {
  SmallTraining run = tested(0);
  const ParameterTable& table = run.model.parameters().table();
  const Parameter& row = table[static_cast<std::size_t>(table.find("h.1.mlp.c_fc.weight"))];
  const Tensor weight = run.model.parameters().weights().slice(row.offset, row.shape);
  Values values = to_values(*run.backend, weight);
  values[7] = std::nan("");
  set_values(*run.backend, weight, values);
  run.model.parameters().update_shadow();
  const std::vector<float> before = run.weights();
  const StepReport report = run.trainer.step();
  EXPECT_TRUE(report.skipped());
  const std::vector<float> after = run.weights();
  for (std::size_t i = 0; i < before.size(); ++i) {
    ASSERT_TRUE(before[i] == after[i] || (std::isnan(before[i]) && std::isnan(after[i]))) << i;
  }
}

std::vector<BackendUnderTest> training_backends() {
  std::vector<BackendUnderTest> backends = backends_under_test();
  // What another order of threads would change, the op table and the golden models see.
  std::erase_if(backends, [](const BackendUnderTest& backend) {
    return !backend.runs_models() || backend.name == "emulated_forward" || backend.name == "emulated_reverse";
  });
  return backends;
}

INSTANTIATE_TEST_SUITE_P(Stage2, Stage2Training, testing::ValuesIn(training_backends()),
                         [](const auto& backend) { return backend.param.name; });

}  // namespace
}  // namespace stagegpt::test
