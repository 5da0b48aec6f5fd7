// Training on the CUDA backend, on a GPU or emulated, compared with stage 0.
#include <gtest/gtest.h>

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

TEST_P(Stage2Training, TrainsAsStage0) {
  constexpr int kSteps = kSanitized ? 3 : 20;
  const double limit = GetParam().rounding > 0 ? kTf32ModelLimit : kDividedTrainingLimit;
  for (const double dropout : {0.0, 0.2}) {
    SmallTraining serial = training(make_cpu_backend(1), dropout), run = training(GetParam().make(), dropout);
    for (int step = 0; step < kSteps; ++step) {
      const StepReport expected = serial.trainer.step(), got = run.trainer.step();
      ASSERT_NEAR(got.loss / expected.loss, 1, limit) << "step " << step;
      ASSERT_NEAR(got.grad_norm / expected.grad_norm, 1, limit) << "step " << step;
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
