// Whole training steps.
#include "common/train/trainer.h"

#include <gtest/gtest.h>

#include "common/comm/self_communicator.h"
#include "common/train/generation.h"
#include "stage0_serial/cpu_backend.h"

namespace stagegpt {
namespace {

constexpr std::int64_t kVocabulary = 37, kT = 17;

std::vector<std::int32_t> random_tokens(int n) {
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < n; ++i)
    tokens.push_back(static_cast<std::int32_t>(random_word({5, 0, 0}, i) % kVocabulary));
  return tokens;
}

// A small model with all that a trainer needs.
struct SmallRun {
  explicit SmallRun(const TrainerConfig& config, std::vector<std::int32_t> text, int threads = 2,
                    double dropout = 0)
      : tokens(std::move(text)),
        backend(make_cpu_backend(threads)),
        model(*backend, model_config(dropout)),
        data(tokens, kT, config.seed),
        trainer(*backend, communicator, sync, model, data, config) {
    model.parameters().initialize(config.seed);
  }

  static Gpt2Config model_config(double dropout) {
    Gpt2Config config;
    config.vocab_size = kVocabulary;
    config.block_size = 20;
    config.n_layer = 2;
    config.n_head = 3;
    config.n_embd = 48;
    config.dropout = dropout;
    return config;
  }
  std::vector<float> weights() { return to_host<float>(*backend, model.parameters().weights()); }
  std::vector<float> grads() { return to_host<float>(*backend, model.parameters().grads()); }

  std::vector<std::int32_t> tokens;
  std::unique_ptr<Backend> backend;
  SelfCommunicator communicator;
  NoGradientSync sync;
  Gpt2 model;
  DataLoader data;
  Trainer trainer;
};

TrainerConfig config(std::int64_t batch_size, std::int64_t grad_accumulation) {
  TrainerConfig config;
  config.batch_size = batch_size;
  config.grad_accumulation = grad_accumulation;
  config.schedule = {
      .kind = LrSchedule::Kind::constant, .learning_rate = 1e-3, .min_lr = 0, .warmup_steps = 0, .steps = 1};
  return config;
}

double relative_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += static_cast<double>(b[i]) * b[i];
  }
  return std::sqrt(difference / norm);
}

TEST(Trainer, AccumulationEqualsTheLargeBatch) {
  for (const double dropout : {0.0, 0.2}) {
    SmallRun large(config(12, 1), random_tokens(1000), 2, dropout),
        small(config(3, 4), random_tokens(1000), 2, dropout);
    for (int step = 0; step < 3; ++step) {
      const StepReport a = large.trainer.step(), b = small.trainer.step();
      EXPECT_NEAR(a.loss, b.loss, 1e-6 * a.loss);
      EXPECT_LT(relative_difference(large.grads(), small.grads()), 1e-5);
    }
  }
}

TEST(Trainer, SameSeedSameBits) {
  for (const double dropout : {0.0, 0.2}) {
    SmallRun a(config(4, 2), random_tokens(1000), 2, dropout),
        b(config(4, 2), random_tokens(1000), 2, dropout);
    for (int step = 0; step < 4; ++step) EXPECT_EQ(a.trainer.step().loss, b.trainer.step().loss);
    EXPECT_EQ(a.weights(), b.weights());
  }
}

TEST(Trainer, OverfitsOneBatch) {
  TrainerConfig overfit = config(1, 1);
  overfit.schedule.learning_rate = 3e-3;
  overfit.adamw.weight_decay = 0;
  SmallRun run(overfit, random_tokens(static_cast<int>(kT) + 1));  // a text of one window
  const double first = run.trainer.step().loss;
  EXPECT_NEAR(first, std::log(kVocabulary), 0.5);
  double loss = first;
  for (int step = 0; step < 150; ++step) loss = run.trainer.step().loss;
  EXPECT_LT(loss, 0.01);
}

TEST(Trainer, AllocatesNothingAfterTheFirstStep) {
  SmallRun run(config(4, 2), random_tokens(1000), 2, 0.1);
  run.trainer.step();
  const std::int64_t allocations = run.backend->memory_stats().source_allocations;
  for (int step = 0; step < 3; ++step) run.trainer.step();
  EXPECT_EQ(run.backend->memory_stats().source_allocations, allocations);
}

TEST(Trainer, PaddingOfTheVocabularyStaysZero) {
  SmallRun run(config(4, 1), random_tokens(1000));
  for (int step = 0; step < 3; ++step) run.trainer.step();
  const std::vector<float> wte =
      to_host<float>(*run.backend, run.model.parameters().var("wte.weight").value());
  for (std::size_t i = kVocabulary * 48; i < wte.size(); ++i) ASSERT_EQ(wte[i], 0);
}

// Records when gradients are announced.
class CountingSync final : public GradientSync {
 public:
  void ready(Parameters& parameters, int i) override {
    counts.resize(parameters.table().size());
    ++counts[static_cast<std::size_t>(i)];
  }
  void finish(Parameters&) override { ++finished; }
  std::vector<int> counts;
  int finished = 0;
};

TEST(Trainer, AnnouncesEachGradientOnceAStep) {
  SmallRun run(config(2, 3), random_tokens(1000));
  CountingSync sync;
  Trainer trainer(*run.backend, run.communicator, sync, run.model, run.data, config(2, 3));
  trainer.step();
  EXPECT_EQ(sync.counts, std::vector<int>(run.model.parameters().table().size(), 1));
  EXPECT_EQ(sync.finished, 1);
}

TEST(Evaluate, IsTheMeanOverAllWindows) {
  SmallRun run(config(4, 1), random_tokens(500));
  const double in_one = evaluate(*run.backend, run.model, run.data, 1000, 1000);
  EXPECT_NEAR(evaluate(*run.backend, run.model, run.data, 3, 1000), in_one, 1e-6);
  EXPECT_NEAR(in_one, std::log(kVocabulary), 0.5);
}

TEST(Generate, RepeatsWhatItHasOverfitted) {
  TrainerConfig overfit = config(1, 1);
  overfit.schedule.learning_rate = 3e-3;
  overfit.adamw.weight_decay = 0;
  SmallRun run(overfit, random_tokens(static_cast<int>(kT) + 1));
  for (int step = 0; step < 150; ++step) run.trainer.step();
  std::vector<std::int32_t> written;
  Context context(*run.backend, run.model);
  generate(context, {run.tokens[0], run.tokens[1], run.tokens[2]}, kT - 3, {.temperature = 0}, 0,
           [&](std::int32_t id) {
             written.push_back(id);
             return true;
           });
  EXPECT_EQ(written, std::vector<std::int32_t>(run.tokens.begin() + 3, run.tokens.begin() + kT));
}

}  // namespace
}  // namespace stagegpt
