// Whole training steps.
#include "common/train/trainer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "common/generation/generation.h"
#include "common/train/evaluate.h"
#include "stage0_serial/cpu_backend.h"
#include "tests/support/small_training.h"

namespace stagegpt {
namespace {

using test::kSmallT;
using test::kSmallVocabulary;
using test::random_tokens;

// A small training on the CPU.
struct SmallRun : test::SmallTraining {
  explicit SmallRun(const TrainerConfig& config, std::vector<std::int32_t> text, int threads = 2,
                    double dropout = 0)
      : SmallTraining(make_cpu_backend(threads), config, std::move(text), dropout) {}
};

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
    SmallRun large(test::small_config(12, 1), random_tokens(1000), 2, dropout),
        small(test::small_config(3, 4), random_tokens(1000), 2, dropout);
    for (int step = 0; step < 3; ++step) {
      const StepReport a = large.trainer.step(), b = small.trainer.step();
      EXPECT_NEAR(a.loss, b.loss, 1e-6 * a.loss);
      EXPECT_LT(relative_difference(large.grads(), small.grads()), 1e-5);
    }
  }
}

// The sub-batches of a reproducible step together give the gradients of the whole batch.
TEST(Trainer, ReproducibleStepsAreTheSameSteps) {
  TrainerConfig in_sub_batches = test::small_config(8, 2);
  in_sub_batches.reproducible = true;
  SmallRun plain(test::small_config(8, 2), random_tokens(1000)),
      reproducible(in_sub_batches, random_tokens(1000));
  for (int step = 0; step < 2; ++step) {
    const StepReport a = plain.trainer.step(), b = reproducible.trainer.step();
    EXPECT_NEAR(a.loss, b.loss, 1e-6 * a.loss);
    EXPECT_NEAR(a.grad_norm, b.grad_norm, 1e-5 * a.grad_norm);
    EXPECT_LT(relative_difference(plain.grads(), reproducible.grads()), 1e-5);
  }
}

TEST(Trainer, SameSeedSameBits) {
  for (const double dropout : {0.0, 0.2}) {
    SmallRun a(test::small_config(4, 2), random_tokens(1000), 2, dropout),
        b(test::small_config(4, 2), random_tokens(1000), 2, dropout);
    for (int step = 0; step < 4; ++step) EXPECT_EQ(a.trainer.step().loss, b.trainer.step().loss);
    EXPECT_EQ(a.weights(), b.weights());
  }
}

TEST(Trainer, OverfitsOneBatchWhichGenerationThenRepeats) {
  TrainerConfig overfit = test::small_config(1, 1);
  overfit.schedule.learning_rate = 3e-3;
  overfit.adamw.weight_decay = 0;
  SmallRun run(overfit, random_tokens(static_cast<int>(kSmallT) + 1));  // a text of one window
  const double first = run.trainer.step().loss;
  EXPECT_NEAR(first, std::log(kSmallVocabulary), 0.5);
  double loss = first;
  for (int step = 0; step < 150; ++step) loss = run.trainer.step().loss;
  EXPECT_LT(loss, 0.01);
  const auto evaluation = evaluate(run.communicator.group(), *run.backend, run.model, run.data.tokens(),
                                   sampled_windows({1, 1}, kSmallT));
  EXPECT_EQ(evaluation->accuracy, 1);
  std::vector<std::int32_t> written;
  Context context(*run.backend, run.model, run.communicator);
  generate(context, {run.tokens[0], run.tokens[1], run.tokens[2]}, kSmallT - 3, {.temperature = 0}, 0,
           [&](std::size_t, std::int32_t id) {
             written.push_back(id);
             return true;
           });
  EXPECT_EQ(written, std::vector<std::int32_t>(run.tokens.begin() + 3, run.tokens.begin() + kSmallT));
}

TEST(Trainer, OverfitsTheFirstBatchOfMany) {
  TrainerConfig overfit = test::small_config(2, 2);
  overfit.schedule.learning_rate = 3e-3;
  overfit.adamw.weight_decay = 0;
  overfit.overfit_batch = true;
  SmallRun run(overfit, random_tokens(1000));
  double loss = 0;
  for (int step = 0; step < 200; ++step) loss = run.trainer.step().loss;
  EXPECT_LT(loss, 0.05);
  EXPECT_EQ(run.trainer.data_position(), 200 * 4);
}

TEST(StepReportTest, is_finite_if_loss_and_gradient_norm_are) {
  const double inf = std::numeric_limits<double>::infinity();
  const auto of = [](double loss, double grad_norm) {
    StepReport report;
    report.loss = loss;
    report.grad_norm = grad_norm;
    return report;
  };
  EXPECT_TRUE(of(1, 2).finite());
  EXPECT_FALSE(of(inf, 2).finite());
  EXPECT_FALSE(of(1, inf).finite());
  EXPECT_FALSE(of(inf, 2).skipped());
  EXPECT_TRUE(of(1, std::nan("")).skipped());
}

// The tensor that first_non_finite() names if the first `count` elements of a parameter are set to `value`.
std::string first_non_finite(const char* parameter, std::size_t count, float value) {
  SmallRun run(test::small_config(2, 2), random_tokens(1000), 2, 0.1);
  const Tensor weight = run.model.parameters().var(parameter).value();
  std::vector<float> values = to_host<float>(*run.backend, weight);
  std::fill_n(values.begin(), count, value);
  upload<float>(*run.backend, weight, values);
  const std::vector<float> before = run.weights();
  const StepReport report = run.trainer.step();
  EXPECT_TRUE(report.skipped());
  const std::vector<float> after = run.weights();
  EXPECT_EQ(std::memcmp(after.data(), before.data(), before.size() * sizeof(float)), 0);
  const std::string found = run.trainer.first_non_finite(report);
  EXPECT_EQ(run.trainer.data_position(), 4);
  return found;
}

TEST(Trainer, NamesWhatIsNotFinite) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(first_non_finite("h.1.mlp.c_fc.weight", 1, kInfinity), "the weight h.1.mlp.c_fc.weight");
  EXPECT_EQ(first_non_finite("h.0.ln_2.bias", 1, -kInfinity), "the weight h.0.ln_2.bias");
  // Finite weights that make the next result overflow.
  EXPECT_EQ(first_non_finite("h.1.mlp.c_fc.weight", 48, 3e38f), "the output of h.1.mlp.c_fc (linear)");
  EXPECT_EQ(first_non_finite("h.0.ln_2.weight", 48, 3e38f), "the output of h.0.ln_2 (residual_layernorm)");
  EXPECT_EQ(first_non_finite("h.0.attn.c_attn.bias", 96, 1e20f),  // queries and keys
            "the output of attention, after h.0.attn.c_attn");
  // A finite forward pass, but the gradient through the activation is not finite.
  EXPECT_EQ(first_non_finite("h.1.mlp.c_fc.bias", 1, 3e38f), "the gradient of h.1.mlp.c_fc.bias");
}

// The embedding of one token overflows. The token is in the samples of the first step, but not of the second.
TEST(Trainer, LooksForWhatIsNotFiniteInTheSamplesOfTheStep) {
  SmallRun run(test::small_config(2, 2), random_tokens(1000));
  const auto first = run.data.shuffled(0, 4).ids, second = run.data.shuffled(4, 4).ids;
  const auto token = std::ranges::find_if(
      first, [&](std::int32_t id) { return std::ranges::find(second, id) == second.end(); });
  ASSERT_NE(token, first.end());
  constexpr float kLarge = 3e38f;  // finite, but twice this value is not
  Backend& backend = *run.backend;
  backend.fill(run.model.parameters().var("wte.weight").value().slice(*token * 48, {1}), kLarge);
  backend.fill(run.model.parameters().var("wpe.weight").value(), kLarge);
  const StepReport report = run.trainer.step();
  EXPECT_EQ(run.trainer.first_non_finite(report), "the output of wte (embedding)");
  EXPECT_EQ(run.trainer.data_position(), 4);
}

TEST(Trainer, GoesOnAfterLookingForWhatIsNotFinite) {
  const auto second_loss = [](bool looks) {
    SmallRun run(test::small_config(2, 2), random_tokens(1000));
    const Tensor bias = run.model.parameters().var("ln_f.bias").value();
    run.backend->fill(bias, std::numeric_limits<double>::infinity());
    const StepReport report = run.trainer.step();
    if (looks) {
      EXPECT_EQ(run.trainer.first_non_finite(report), "the weight ln_f.bias");
    }
    run.backend->fill(bias, 0);
    return run.trainer.step().loss;
  };
  EXPECT_EQ(second_loss(true), second_loss(false));
}

// Takes a step without weight decay, and returns the median of |change| / learning rate of a parameter. After
// t updates with moments of zero it is (1-β₁)/(1-β₁ᵗ) / √((1-β₂)/(1-β₂ᵗ)), so 1 for t = 1.
double relative_update(SmallRun& run, const char* parameter) {
  const Tensor weight = run.model.parameters().var(parameter).value();
  const std::vector<float> before = to_host<float>(*run.backend, weight);
  const double rate = run.trainer.step().learning_rate;
  const std::vector<float> after = to_host<float>(*run.backend, weight);
  std::vector<double> changes;
  for (std::size_t i = 0; i < before.size(); ++i)
    changes.push_back(std::abs(static_cast<double>(after[i]) - before[i]) / rate);
  std::ranges::nth_element(changes, changes.begin() + std::ssize(changes) / 2);
  return changes[changes.size() / 2];
}

TrainerConfig without_decay() {
  TrainerConfig config = test::small_config(2, 2);
  config.adamw.weight_decay = 0;
  return config;
}

// As in PyTorch, where a skipped step does not call the optimizer.
TEST(Trainer, ASkippedStepIsNoUpdate) {
  SmallRun run(without_decay(), random_tokens(1000));
  const Tensor bias = run.model.parameters().var("ln_f.bias").value();
  run.backend->fill(bias, std::numeric_limits<double>::infinity());
  EXPECT_TRUE(run.trainer.step().skipped());
  run.backend->fill(bias, 0);
  EXPECT_NEAR(relative_update(run, "h.0.mlp.c_fc.weight"), 1, 1e-3);
  EXPECT_EQ(run.trainer.steps_done(), 2);
  EXPECT_EQ(run.trainer.updates(), UpdateCounts{1});
}

// As in PyTorch, which counts the updates of each parameter.
TEST(Trainer, AThawedParameterBeginsAsANewOne) {
  Gpt2Config config = SmallRun::model_config(/*dropout=*/0);
  config.frozen = {"h.0.mlp.c_fc*"};
  test::SmallTraining frozen(make_cpu_backend(2), without_decay(), random_tokens(1000), config);
  for (int step = 0; step < 20; ++step) frozen.trainer.step();
  const UpdateCounts expected{20, {{"h.0.mlp.c_fc.bias", 0}, {"h.0.mlp.c_fc.weight", 0}}};
  EXPECT_EQ(frozen.trainer.updates(), expected);

  const auto thawed = [&](const char* parameter) {  // all moments are zeros
    SmallRun run(without_decay(), random_tokens(1000));
    run.trainer.restore(20, frozen.trainer.data_position(), expected);
    const double update = relative_update(run, parameter);
    EXPECT_EQ(run.trainer.updates(),
              (UpdateCounts{21, {{"h.0.mlp.c_fc.bias", 1}, {"h.0.mlp.c_fc.weight", 1}}}));
    return update;
  };
  EXPECT_NEAR(thawed("h.0.mlp.c_fc.weight"), 1, 1e-3);
  const double m = 0.1 / (1 - std::pow(0.9, 21)), v = 0.05 / (1 - std::pow(0.95, 21));
  EXPECT_NEAR(thawed("h.1.mlp.c_fc.weight"), m / std::sqrt(v), 1e-3);
}

TEST(Trainer, AllocatesNothingAfterTheFirstStep) {
  SmallRun run(test::small_config(4, 2), random_tokens(1000), 2, 0.1);
  run.trainer.step();
  const std::int64_t allocations = run.backend->memory_stats().source_allocations;
  for (int step = 0; step < 3; ++step) run.trainer.step();
  EXPECT_EQ(run.backend->memory_stats().source_allocations, allocations);
}

TEST(Trainer, PaddingOfTheVocabularyStaysZero) {
  SmallRun run(test::small_config(4, 1), random_tokens(1000));
  for (int step = 0; step < 3; ++step) run.trainer.step();
  const std::vector<float> wte =
      to_host<float>(*run.backend, run.model.parameters().var("wte.weight").value());
  for (std::size_t i = kSmallVocabulary * 48; i < wte.size(); ++i) ASSERT_EQ(wte[i], 0);
}

// Counts how often each gradient is reported as ready.
class CountingSync final : public NoGradientSync {
 public:
  CountingSync() : NoGradientSync({.communicates = true}) {}
  void ready(Parameters& parameters, int i) override {
    counts.resize(parameters.table().size());
    ++counts[static_cast<std::size_t>(i)];
  }
  void finish(Parameters&) override { ++finished; }
  CommunicationReport take_report() override { return {100 * finished, 0}; }
  std::vector<int> counts;
  int finished = 0;
};

TEST(Trainer, AnnouncesEachGradientOnceAStep) {
  for (const Recompute recompute : {Recompute::none, Recompute::gelu, Recompute::block}) {
    TrainerConfig config = test::small_config(2, 3);
    config.recompute = recompute;
    SmallRun run(config, random_tokens(1000));
    CountingSync sync;
    Trainer trainer(*run.backend, run.communicator, sync, run.model, run.data, config);
    EXPECT_EQ(trainer.step().communication.bytes_reduced, 100);
    EXPECT_EQ(sync.counts, std::vector<int>(run.model.parameters().table().size(), 1));
    EXPECT_EQ(sync.finished, 1);
  }
}

struct RecomputedModel {
  const char* name;
  Gpt2Config config;
  bool reproducible = false, fused = true;
};

std::vector<RecomputedModel> recomputed_models() {
  const Gpt2Config usual = test::SmallTraining::model_config(0.2);
  const auto with = [&](auto change) {
    Gpt2Config config = usual;
    change(config);
    return config;
  };
  return {{"tied", usual},
          {"reproducible", usual, true},
          {"not fused", usual, false, false},
          {"no dropout, one layer", with([](auto& c) { c.dropout = 0, c.n_layer = 1; })},
          {"untied", with([](auto& c) { c.tie_word_embeddings = false, c.n_inner = 31; })},
          {"gelu", with([](auto& c) { c.activation = Activation::gelu; })},
          {"relu", with([](auto& c) { c.activation = Activation::relu; })},
          {"frozen matrices", with([](auto& c) {
             c.frozen = {"wte*", "*.mlp.c_fc.*", "h.1.ln_1.*"};
           })},
          {"a frozen first block", with([](auto& c) {
             c.frozen = {"wte*", "wpe*", "h.0.*"};
           })},
          {"only a frozen head of the stack", with([](auto& c) {
             c.frozen = {"h.1.*", "ln_f.*"};
           })}};
}

TEST(Trainer, RecomputationChangesNoBit) {
  for (const RecomputedModel& model : recomputed_models()) {
    const auto training = [&](Recompute recompute) {
      TrainerConfig config = test::small_config(8, 2);
      config.reproducible = model.reproducible;
      config.recompute = recompute;
      auto run = std::make_unique<test::SmallTraining>(make_cpu_backend(2), config, random_tokens(1000),
                                                       model.config);
      run->backend->set_reproducible(model.reproducible);
      run->backend->set_fused(model.fused);
      return run;
    };
    const auto whole = training(Recompute::none), gelu = training(Recompute::gelu),
               block = training(Recompute::block);
    for (int step = 0; step < 2; ++step) {
      const StepReport expected = whole->trainer.step();
      for (const auto* run : {&gelu, &block}) {
        const StepReport report = (*run)->trainer.step();
        EXPECT_EQ(report.loss, expected.loss) << model.name;
        EXPECT_EQ(report.grad_norm, expected.grad_norm) << model.name;
        EXPECT_EQ((*run)->grads() == whole->grads(), true) << model.name;
        EXPECT_EQ((*run)->weights() == whole->weights(), true) << model.name;
      }
    }
    const auto peak = [](const auto& run) { return run->backend->memory_stats().peak_bytes_in_use; };
    EXPECT_LE(peak(gelu), peak(whole)) << model.name;
  }
}

}  // namespace
}  // namespace stagegpt
