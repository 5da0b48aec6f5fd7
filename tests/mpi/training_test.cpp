// Training on several ranks gives the results of one process, with every gradient synchronisation.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "common/comm/agreement.h"
#include "common/comm/tree_sync.h"
#include "common/train/checkpoint_arenas.h"
#include "common/train/evaluate.h"
#include "common/train/memory_plan.h"
#include "stage1_mpi/gradient_syncs.h"
#include "stage1_mpi/sync/bucketed_sync.h"
#include "stage1_mpi/sync/overlapped_sync.h"
#include "stage1_mpi/sync/zero1_overlapped_sync.h"
#include "tests/mpi/small_run.h"
#include "tests/support/tolerance.h"

namespace stagegpt::test {
namespace {

constexpr int kSteps = 2;
// A bucket size of one tenth of the small model's arena, so that there are several buckets.
constexpr std::int64_t kSmallBucket = 40 << 10;

struct Sync {
  std::string name;
  CommAlgorithm algorithm;
  MakeSync make;
};

std::ostream& operator<<(std::ostream& out, const Sync& sync) { return out << sync.name; }

std::vector<Sync> syncs() {
  std::vector<Sync> all;
  const std::pair<CommAlgorithm, const char*> algorithms[] = {{CommAlgorithm::ring, "_by_ring"},
                                                              {CommAlgorithm::mpi, "_by_mpi"}};
  for (const auto& [algorithm, suffix] : algorithms) {
    const std::string by = suffix;
    for (const std::string& name : gradient_sync_names()) {
      all.push_back({name + by, algorithm, sync_named(name)});
      std::ranges::replace(all.back().name, '-', '_');
    }
    all.push_back({"bucketed_in_small" + by, algorithm, sync_of<BucketedSync>(kSmallBucket)});
    all.push_back({"overlapped_in_small" + by, algorithm, sync_of<OverlappedSync>(kSmallBucket)});
    all.push_back({"zero1_overlapped_in_small" + by, algorithm, sync_of<Zero1OverlappedSync>(kSmallBucket)});
  }
  return all;
}

Values doubles(std::span<const float> values) { return {values.begin(), values.end()}; }

// AdamW's moments m and v, gathered on rank 0.
std::array<std::vector<float>, 2> moments_on_root(const SmallRun& run) {
  std::array<std::vector<float>, 2> all;
  const std::vector<OwnedArena> arenas = checkpoint_arenas(run.grid, run.model, run.trainer.optimizer());
  const ParameterTable& table = run.model.parameters().table();
  PieceStream stream(ranks(), *run.backend, placed_as_in(table), {arenas[1], arenas[2]});
  stream.run([&] {
    for (const std::size_t moment : {0, 1}) {
      all[moment].resize(static_cast<std::size_t>(run.model.parameters().weights().numel()));
      for (std::size_t i = 0; i < table.size(); ++i) {
        stream.values(moment)(i, 0,
                              std::span(all[moment])
                                  .subspan(static_cast<std::size_t>(table[i].offset),
                                           static_cast<std::size_t>(table[i].shape.numel())));
      }
    }
  });
  return all;
}

// A step, and the numbers of its layers.
std::pair<StepReport, std::vector<LayerHealth>> watched_step(SmallRun& run) {
  LayerWatch watch(run.grid, *run.backend, run.model, run.trainer.optimizer().owned());
  const StepReport report = run.trainer.step({}, &watch);
  return {report, watch.finish()};
}

// These are sums over what each rank owns, and over the tokens of each rank.
void expect_same_layers(const std::vector<LayerHealth>& got, const std::vector<LayerHealth>& expected) {
  const auto expect_near = [](double a, double b) { EXPECT_NEAR(a, b, 1e-4 * std::abs(b)); };
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    SCOPED_TRACE(expected[i].name);
    EXPECT_EQ(got[i].name, expected[i].name);
    expect_near(got[i].grad_norm, expected[i].grad_norm);
    expect_near(got[i].weight_norm, expected[i].weight_norm);
    expect_near(got[i].update_ratio, expected[i].update_ratio);
    ASSERT_EQ(got[i].activations.has_value(), expected[i].activations.has_value());
    if (!got[i].activations) continue;
    const BlockActivations &a = *got[i].activations, &b = *expected[i].activations;
    EXPECT_NEAR(a.mean, b.mean, 1e-7);
    expect_near(a.rms, b.rms);
    expect_near(a.largest, b.largest);
    expect_near(a.attention_added, b.attention_added);
    expect_near(a.mlp_added, b.mlp_added);
    EXPECT_EQ(a.dead_units, b.dead_units);
  }
}

const std::array<SmallSettings, 2> kWholeAndAccumulated = {SmallSettings{},
                                                           {.accumulation = 2, .dropout = 0.2}};

// The training of one process that those of ranks must equal.
struct TrainingOfOne {
  struct Step {
    StepReport report;
    std::vector<LayerHealth> layers;
    std::vector<float> grads, weights;
  };
  std::vector<Step> steps;
  std::int64_t data_position = 0;
  std::vector<float> m, v;
};

TrainingOfOne train_one(const SmallSettings& settings) {
  SmallRun run(settings);
  TrainingOfOne all;
  for (int step = 0; step < kSteps; ++step) {
    auto [report, layers] = watched_step(run);
    all.steps.push_back(
        {std::move(report), std::move(layers), run.elements(run.model.parameters().grads()), run.weights()});
  }
  all.data_position = run.trainer.data_position();
  all.m = run.elements(run.trainer.optimizer().moments().m);
  all.v = run.elements(run.trainer.optimizer().moments().v);
  return all;
}

// It is the same for every synchronisation.
const TrainingOfOne& training_of_one(std::size_t settings) {
  static const std::array trainings = {train_one(kWholeAndAccumulated[0]),
                                       train_one(kWholeAndAccumulated[1])};
  return trainings.at(settings);
}

class TrainingOfRanks : public testing::TestWithParam<Sync> {
 protected:
  static SmallRun run_of_ranks(const SmallSettings& settings) {
    return SmallRun(settings, GetParam().algorithm, GetParam().make);
  }
  // Compares `got` with the elements of `expected` from `begin` on. Arenas for different numbers of ranks
  // have different padding at the end, so only the common elements are compared.
  static void expect_close(const char* what, const std::vector<float>& got, std::int64_t begin,
                           const std::vector<float>& expected, double limit) {
    const auto first = static_cast<std::size_t>(begin);
    const std::size_t size = std::min(got.size(), expected.size() - first);
    EXPECT_LE(relative_error(doubles(std::span(got).first(size)),
                             doubles(std::span(expected).subspan(first, size))),
              limit)
        << what;
  }
};

TEST_P(TrainingOfRanks, equals_that_of_one_process) {
  for (std::size_t i = 0; i < kWholeAndAccumulated.size(); ++i) {
    const SmallSettings& settings = kWholeAndAccumulated[i];
    const TrainingOfOne& one = training_of_one(i);
    SmallRun many = run_of_ranks(settings);
    const ArenaParts owned = many.trainer.optimizer().owned();
    const double sum_limit = error_limit(0, settings.batch_size * settings.accumulation * kT, DType::f32);
    for (int step = 0; step < kSteps; ++step) {
      SCOPED_TRACE(concat("step ", step, " with dropout ", settings.dropout));
      const TrainingOfOne::Step& expected = one.steps[static_cast<std::size_t>(step)];
      const auto [report, layers] = watched_step(many);
      if (step == 0) expect_same_layers(layers, expected.layers);
      EXPECT_LE(relative_error({report.loss}, {expected.report.loss}), sum_limit);
      EXPECT_LE(relative_error({report.grad_norm}, {expected.report.grad_norm}), sum_limit);
      for (const ArenaRange& part : owned) {
        const Tensor grads = many.model.parameters().grads(part);
        expect_close("gradients", many.elements(grads), part.begin, expected.grads,
                     step == 0 ? sum_limit : kDividedTrainingLimit);
      }
      expect_close("weights", many.weights(), 0, expected.weights, kDividedTrainingLimit);
    }
    EXPECT_EQ(many.trainer.data_position(), one.data_position);
    std::vector<float> roots = many.weights();
    ranks().broadcast(std::as_writable_bytes(std::span(roots)), 0);
    EXPECT_EQ(many.weights() == roots, true) << "to the bit on all ranks";
    const auto [m, v] = moments_on_root(many);
    if (!ranks().is_root()) continue;
    expect_close("m", m, 0, one.m, kDividedTrainingLimit);
    expect_close("v", v, 0, one.v, kDividedTrainingLimit);
  }
}

using RecomputationOfRanks = TrainingOfRanks;

TEST_P(RecomputationOfRanks, changes_no_bit) {
  SmallSettings settings{.accumulation = 2, .dropout = 0.2};
  SmallRun whole = run_of_ranks(settings);
  settings.recompute = Recompute::gelu;
  SmallRun gelu = run_of_ranks(settings);
  settings.recompute = Recompute::block;
  SmallRun block = run_of_ranks(settings);
  for (int step = 0; step < kSteps; ++step) {
    const StepReport expected = whole.trainer.step();
    for (SmallRun* run : {&gelu, &block}) {
      const StepReport report = run->trainer.step();
      EXPECT_EQ(report.loss, expected.loss);
      EXPECT_EQ(report.grad_norm, expected.grad_norm);
      EXPECT_EQ(report.communication.bytes_reduced, expected.communication.bytes_reduced);
      EXPECT_EQ(run->weights() == whole.weights(), true) << "step " << step;
    }
  }
}

TEST_P(TrainingOfRanks, names_the_rank_whose_numbers_are_not_finite) {
  SmallRun run = run_of_ranks({});
  const StepReport report = run.trainer.step();
  EXPECT_EQ(run.trainer.first_non_finite(report),
            "an unknown tensor, which a second forward pass does not reproduce,");
  const int last = ranks().size() - 1;
  if (ranks().rank() == last) {
    upload<float>(*run.backend, run.model.parameters().weights().slice(0, {1}),
                  std::array{std::numeric_limits<float>::quiet_NaN()});
  }
  const std::string found = run.trainer.first_non_finite(report);
  if (last > 0) {
    EXPECT_TRUE(found.ends_with(concat(" on rank ", last))) << found;
  } else {
    EXPECT_EQ(found.find("rank"), std::string::npos) << found;
  }
}

TEST_P(TrainingOfRanks, goes_on_from_gathered_moments) {
  SmallRun run = run_of_ranks({}), resumed = run_of_ranks({});
  run.trainer.step();
  const std::array<std::vector<float>, 2> gathered = moments_on_root(run);
  const Tensor weights = resumed.model.parameters().weights();
  resumed.backend->copy(weights, run.model.parameters().weights());
  std::array<std::vector<float>, 2> all;
  for (const std::size_t i : {0, 1}) {
    all[i] = gathered[i];
    all[i].resize(static_cast<std::size_t>(weights.numel()));
    ranks().broadcast(std::as_writable_bytes(std::span(all[i])), 0);
  }
  const ParameterTable& table = resumed.model.parameters().table();
  std::int64_t read = 0;
  const auto values = [&](std::size_t moment) -> ParameterValues {
    return [&, moment](std::size_t i, std::int64_t begin, std::span<float> out) {
      std::ranges::copy(
          std::span(all[moment]).subspan(static_cast<std::size_t>(table[i].offset + begin), out.size()),
          out.begin());
      read += std::ssize(out);
    };
  };
  load_moments(*resumed.backend, resumed.grid, resumed.model, resumed.trainer.optimizer(),
               {values(0), values(1)});
  EXPECT_LE(read, 2 * weights.numel() / ranks().size());  // no rank reads what others have
  resumed.trainer.restore(run.trainer.steps_done(), run.trainer.data_position(), run.trainer.updates());
  EXPECT_EQ(resumed.trainer.step().loss, run.trainer.step().loss);
  EXPECT_EQ(resumed.weights() == run.weights(), true);
}

// Each rank has a different squared norm. The sum over ranks is needed only if the optimizer is divided among
// the ranks.
TEST_P(TrainingOfRanks, has_one_norm) {
  const SmallRun run = run_of_ranks({});
  const bool divided =
      total_size(run.trainer.optimizer().owned()) != run.model.parameters().weights().numel();
  const int n = ranks().size();
  const Tensor norm = to_tensor(*run.backend, DType::f64, {1}, {1.5 + ranks().rank()});
  run.sync->sum_squared_norms(norm, norm);
  EXPECT_EQ(to_value(*run.backend, norm), divided ? 1.5 * n + n * (n - 1) / 2.0 : 1.5);
}

TEST_P(TrainingOfRanks, skips_an_update_on_all_ranks_for_what_one_has) {
  SmallRun run = run_of_ranks({});
  const Tensor bias = run.model.parameters().var("h.0.ln_2.bias").value();
  if (ranks().rank() == ranks().size() - 1) {
    run.backend->fill(bias, std::numeric_limits<double>::infinity());
  }
  const StepReport report = run.trainer.step();
  EXPECT_TRUE(report.skipped());
  EXPECT_FALSE(std::isfinite(report.loss));
  const std::string found = run.trainer.first_non_finite(report);
  EXPECT_EQ(found, broadcast_text(ranks(), found));
  EXPECT_NE(found, "");
}

INSTANTIATE_TEST_SUITE_P(By, TrainingOfRanks, testing::ValuesIn(syncs()), testing::PrintToStringParamName());

// Recomputation does not depend on the algorithm of the communicator, so one of them is enough.
std::vector<Sync> syncs_by_ring() {
  std::vector<Sync> all = syncs();
  std::erase_if(all, [](const Sync& sync) { return sync.algorithm != CommAlgorithm::ring; });
  return all;
}
INSTANTIATE_TEST_SUITE_P(By, RecomputationOfRanks, testing::ValuesIn(syncs_by_ring()),
                         testing::PrintToStringParamName());

SmallRun divided_run(const SmallSettings& settings) {
  return SmallRun(settings, CommAlgorithm::ring, sync_of<Zero1OverlappedSync>(kSmallBucket));
}

TEST(DividedTraining, takes_the_memory_of_its_plan) {
  const SmallSettings settings{.accumulation = 2};
  SmallRun run = divided_run(settings);
  for (int step = 0; step < 2; ++step) run.trainer.step();
  const auto plan = static_cast<double>(
      plan_memory({run.model.config(), SmallRun::trainer_config(settings), kT, ranks().size(), *run.sync})
          .total());
  EXPECT_NEAR(static_cast<double>(run.backend->memory_stats().peak_bytes_in_use), plan, 0.05 * plan);
}

// The last parameter is the first in the backward pass. Only the last rank owns a sum of it.
TEST(DividedTraining, searches_the_gradients_of_all_ranks) {
  SmallRun run = divided_run({});
  const StepReport report = run.trainer.step();
  for (const ArenaRange& part : run.trainer.optimizer().owned())
    run.backend->fill(run.model.parameters().grads(part), std::numeric_limits<double>::infinity());
  const std::string found = run.trainer.first_non_finite(report);
  EXPECT_NE(found.find("ln_f.bias"), std::string::npos) << found;
}

SmallRun reproducible_run(const SmallSettings& settings) {
  return SmallRun(settings, CommAlgorithm::ring, sync_of<TreeSync>());
}

// Each rank also has a different number of threads, and computes activations again.
TEST(ReproducibleTraining, has_the_bits_of_one_process) {
  SmallSettings settings{.batch_size = 16, .accumulation = 2, .dropout = 0.2, .reproducible = true};
  if (kReproducibleSubBatches % ranks().size() != 0) {
    EXPECT_THROW(reproducible_run(settings), UserError);
    return;
  }
  SmallRun one(settings);
  settings.threads = 3;
  SmallRun one_of_three_threads(settings);
  settings.threads = 1 + ranks().rank();
  settings.recompute = Recompute::block;
  SmallRun many = reproducible_run(settings);
  for (int step = 0; step < kSteps; ++step) {
    const StepReport expected = one.trainer.step();
    for (SmallRun* run : {&one_of_three_threads, &many}) {
      const StepReport report = run->trainer.step();
      EXPECT_EQ(report.loss, expected.loss);
      EXPECT_EQ(report.grad_norm, expected.grad_norm);
      std::vector<float> weights = run->weights(), expected_weights = one.weights();
      weights.resize(expected_weights.size());  // without the padding for ranks
      EXPECT_EQ(weights == expected_weights, true) << "step " << step;
    }
  }
}

TEST(EvaluationByRanks, has_the_bits_of_one_process) {
  const SmallRun run{SmallSettings{}};
  SingleProcess single;
  for (const std::int64_t batch_size : {1, 3, 100}) {
    for (const std::int64_t windows : {1, 2, 50, 88}) {
      const Windows taken = sampled_windows({88, windows}, run.data.seq_len());
      const BatchOptions options{.batch_size = batch_size, .stoppable = true};
      const TokenSequence& tokens = run.data.tokens();
      const Evaluation expected = *evaluate(single, *run.backend, run.model, tokens, taken, options);
      const Evaluation evaluation = *evaluate(ranks(), *run.backend, run.model, tokens, taken, options);
      EXPECT_EQ(evaluation.loss, expected.loss) << windows << " windows by " << batch_size;
      EXPECT_EQ(evaluation.accuracy, expected.accuracy) << windows << " windows by " << batch_size;
    }
  }
}

}  // namespace
}  // namespace stagegpt::test
