// Training through the CUDA backend, on a GPU or emulated, beside stage 0's.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "common/comm/self_communicator.h"
#include "common/train/trainer.h"
#include "stage0_serial/cpu_backend.h"
#include "stage2_cuda/runtime.h"
#include "tests/support/backends.h"
#include "tests/support/tolerance.h"

namespace stagegpt::test {
namespace {

constexpr std::int64_t kVocabulary = 37, kT = 17;

std::vector<std::int32_t> random_tokens(int n) {
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < n; ++i)
    tokens.push_back(static_cast<std::int32_t>(random_word({5, 0, 0}, i) % kVocabulary));
  return tokens;
}

Gpt2Config model_config(double dropout) {
  Gpt2Config config;
  config.vocab_size = kVocabulary;
  config.block_size = 20;
  config.n_layer = 2;
  config.n_head = 3;
  config.n_embd = 48;
  config.dropout = dropout;
  return config;
}

TrainerConfig trainer_config() {
  TrainerConfig config;
  config.batch_size = 3;
  config.grad_accumulation = 2;
  config.schedule = {
      .kind = LrSchedule::Kind::constant, .learning_rate = 1e-3, .min_lr = 0, .warmup_steps = 0, .steps = 1};
  return config;
}

// A small model with all that a trainer needs.
struct SmallRun {
  SmallRun(std::unique_ptr<Backend> on, double dropout, TrainerConfig config = trainer_config())
      : backend(std::move(on)),
        model(*backend, model_config(dropout)),
        data(tokens, kT, config.seed),
        trainer(*backend, communicator, sync, model, data, config) {
    model.parameters().initialize(config.seed);
  }
  Values weights() { return to_values(*backend, model.parameters().weights()); }

  std::vector<std::int32_t> tokens = random_tokens(1000);
  std::unique_ptr<Backend> backend;
  SelfCommunicator communicator;
  NoGradientSync sync;
  Gpt2 model;
  DataLoader data;
  Trainer trainer;
};

class Stage2Training : public testing::TestWithParam<BackendUnderTest> {};

TEST_P(Stage2Training, TwentyStepsAreThoseOfStage0) {
  for (const double dropout : {0.0, 0.2}) {
    SmallRun serial(make_cpu_backend(1), dropout), run(GetParam().make(), dropout);
    for (int step = 0; step < 20; ++step) {
      const StepReport expected = serial.trainer.step(), got = run.trainer.step();
      ASSERT_NEAR(got.loss / expected.loss, 1, kDividedTrainingLimit) << "step " << step;
      ASSERT_NEAR(got.grad_norm / expected.grad_norm, 1, kDividedTrainingLimit) << "step " << step;
    }
  }
}

TEST_P(Stage2Training, ASecondStepAsksTheDeviceForNoMemory) {
  SmallRun run(GetParam().make(), 0.1);
  run.trainer.step();
  const std::int64_t after_one = run.backend->memory_stats().source_allocations;
  const std::size_t free = gpu::memory_info().free;
  for (int step = 0; step < 3; ++step) run.trainer.step();
  EXPECT_EQ(run.backend->memory_stats().source_allocations, after_one);
  EXPECT_EQ(gpu::memory_info().free, free);
}

TEST_P(Stage2Training, SameSeedSameBits) {
  SmallRun a(GetParam().make(), 0.1), b(GetParam().make(), 0.1);
  for (int step = 0; step < 4; ++step) EXPECT_EQ(a.trainer.step().loss, b.trainer.step().loss);
  EXPECT_EQ(a.weights(), b.weights());
}

// The device decides, and the host learns of it later.
TEST_P(Stage2Training, ANormThatIsNotFiniteSkipsTheUpdate) {
  SmallRun run(GetParam().make(), 0);
  const Tensor weight = run.model.parameters().var("h.1.mlp.c_fc.weight").value();
  Values values = to_values(*run.backend, weight);
  values[7] = std::nan("");
  set_values(*run.backend, weight, values);
  const Values before = run.weights();
  const StepReport report = run.trainer.step();
  EXPECT_TRUE(report.skipped());
  const Values after = run.weights();
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
