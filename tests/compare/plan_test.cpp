// The contestants of each kind of experiment, and the flags that they get.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "common/base/error.h"
#include "tests/compare/made_comparison.h"
#include "tests/support/program.h"
#include "tests/support/refusal.h"
#include "tools/compare/stage_programs.h"

namespace stagegpt::compare::test {
namespace {

using Texts = std::vector<std::string>;
using stagegpt::test::words;

Experiment experiment(Mode mode, const std::vector<std::int64_t>& ranks) {
  Experiment experiment;
  experiment.flags = experiment_flags({}, {});
  experiment.mode = mode;
  experiment.ranks = ranks;
  experiment.cores = 4;
  experiment.reproducible_pass = false;
  return experiment;
}

// The contestants, each as "stage ranks×threads batch".
Texts planned(const Experiment& experiment) {
  Texts texts;
  for (const Contestant& who :
       plan_contestants(experiment, {program(0), program(1), program(2, Hardware::emulator)}).contestants) {
    texts.push_back(concat(who.program.stage, " ", who.ranks, "x", who.threads, " ", who.batch_size,
                           who.reproducible ? " reproducible" : ""));
  }
  return texts;
}

TEST(Plan, RanksDivideTheSameCores) {
  EXPECT_EQ(planned(experiment(Mode::same_cores, {1, 2, 8})),
            (Texts{"0 1x4 8", "1 1x4 8", "1 2x2 8", "1 8x1 8", "2 1x4 8"}));
}

TEST(Plan, NaiveKernelsHaveOneThread) {
  StageProgram stage = program(0);
  stage.flags.insert("--cpu-kernels");
  Experiment naive = experiment(Mode::same_cores, {1});
  naive.reproducible_pass = true;
  naive.flags.set("--cpu-kernels", {"naive"});
  for (const Contestant& who : plan_contestants(naive, {stage}).contestants) EXPECT_EQ(who.threads, 1);
  naive.flags.set("--cpu-kernels", {"vectorised"});
  for (const Contestant& who : plan_contestants(naive, {stage}).contestants) EXPECT_EQ(who.threads, 4);
}

TEST(Plan, StrongScalingGivesEachRankItsOwnCores) {
  EXPECT_EQ(planned(experiment(Mode::strong, {1, 2})), (Texts{"0 1x2 8", "1 1x2 8", "1 2x2 8", "2 1x2 8"}));
}

TEST(Plan, WeakScalingGivesEachRankTheSameBatch) {
  EXPECT_EQ(planned(experiment(Mode::weak, {1, 2})),
            (Texts{"0 1x2 8", "1 1x2 8", "2 1x2 8", "0 1x2 16", "1 2x2 16", "2 1x2 16"}));
}

TEST(Plan, ReproducibleOnceMoreOnAsManyRanksAsItCan) {
  Experiment once_more = experiment(Mode::same_cores, {1, 2});
  once_more.reproducible_pass = true;
  EXPECT_EQ(planned(once_more), (Texts{"0 1x4 8", "1 1x4 8", "1 2x2 8", "2 1x4 8", "0 1x4 8 reproducible",
                                       "1 2x2 8 reproducible", "2 1x4 8 reproducible"}));
  once_more.reproducible = true;  // all runs are reproducible already
  EXPECT_EQ(planned(once_more).size(), 4u);
}

TEST(Plan, ReproducibleRunsTakeOneOf1And2And4And8Ranks) {
  Experiment of_three = experiment(Mode::same_cores, {2, 3});
  of_three.reproducible_pass = true;
  of_three.flags.set("--batch-size", {"24"});
  const Plan plan = plan_contestants(of_three, {program(1)});
  ASSERT_EQ(plan.contestants.size(), 3u);
  EXPECT_EQ(plan.contestants[1].ranks, 3);
  EXPECT_EQ(plan.contestants[2].ranks, 2);
  EXPECT_TRUE(plan.contestants[2].reproducible);
}

TEST(Plan, ABatchThatDoesNotDivideIsRefusedIfAllRunsAreReproducible) {
  Experiment odd = experiment(Mode::same_cores, {1});
  odd.flags.set("--batch-size", {"6"});
  odd.reproducible = true;
  EXPECT_THROW(plan_contestants(odd, {program(0)}), UserError);
}

// The contestants of stage 1 on ranks that can be divided, and those that are left out.
Texts planned_grids(const Experiment& experiment) {
  StageProgram stage = program(1);
  stage.flags.insert({kTensorFlag, kPipelineFlag});
  const Plan plan = plan_contestants(experiment, {program(0), stage});
  Texts texts;
  for (const Contestant& who : plan.contestants) texts.push_back(who.label());
  for (const auto& [who, why] : plan.left_out) texts.push_back(concat(who, ": ", why));
  return texts;
}

TEST(Plan, RanksFormEachGridThatDividesThem) {
  Experiment grids = experiment(Mode::same_cores, {1, 2, 4});
  grids.tensor_parallel = grids.pipeline_parallel = {1, 2};
  EXPECT_EQ(planned_grids(grids),
            (Texts{"Stage 0", "Stage 1, 1 rank", "Stage 1, 2 ranks", "Stage 1, 2 ranks, pipeline 2",
                   "Stage 1, 2 ranks, tensor 2", "Stage 1, 4 ranks", "Stage 1, 4 ranks, pipeline 2",
                   "Stage 1, 4 ranks, tensor 2", "Stage 1, 4 ranks, tensor 2, pipeline 2"}));
  grids.ranks = {1, 4};
  grids.tensor_parallel = grids.pipeline_parallel = {2};
  grids.reproducible_pass = true;
  EXPECT_EQ(planned_grids(grids),
            (Texts{"Stage 0", "Stage 1, 4 ranks, tensor 2, pipeline 2", "Stage 0, reproducible",
                   "Stage 1, 4 ranks, reproducible",
                   "Stage 1, 1 rank: --ranks: 1 rank cannot be divided as --tensor-parallel and "
                   "--pipeline-parallel ask"}));
}

// A batch of 6 is divided among the data ranks alone.
TEST(Plan, DataRanksOfAGridDivideTheBatch) {
  Experiment grids = experiment(Mode::same_cores, {4});
  grids.flags.set("--batch-size", {"6"});
  grids.tensor_parallel = {2};
  EXPECT_EQ(planned_grids(grids), (Texts{"Stage 0", "Stage 1, 4 ranks, tensor 2"}));
  grids.tensor_parallel = {1, 2};
  EXPECT_EQ(planned_grids(grids).back().substr(0, 32), "Stage 1, 4 ranks: --batch-size: ");
}

TEST(Plan, RefusesGridsThatNoRanksCanForm) {
  Experiment grids = experiment(Mode::same_cores, {1, 2, 3});
  grids.flags.set("--batch-size", {"6"});
  const auto refusal = [&](std::vector<std::int64_t> tensor, std::vector<std::int64_t> pipeline) {
    grids.tensor_parallel = std::move(tensor);
    grids.pipeline_parallel = std::move(pipeline);
    return stagegpt::test::refusal([&] { planned_grids(grids); });
  };
  EXPECT_EQ(refusal({1, 2}, {1, 3}), "");
  EXPECT_EQ(refusal({1, 4}, {1}),
            "--tensor-parallel: no number of --ranks can be divided into groups of 4 with one model");
  EXPECT_EQ(refusal({1}, {5}),
            "--tensor-parallel: no number of --ranks can be divided into groups of 5 with one model");
  EXPECT_EQ(refusal({1}, {1, 5}),
            "--pipeline-parallel: no number of --ranks can be divided into groups of 5 with one model");
  EXPECT_EQ(refusal({2}, {2}),
            "--tensor-parallel: no number of --ranks can be divided into groups of 4 with one model");
  grids.ranks_are_asked_for = true;
  EXPECT_EQ(refusal({3}, {1}),
            "--ranks: 1 rank cannot be divided as --tensor-parallel and --pipeline-parallel ask");
  grids.reproducible = true;
  EXPECT_EQ(refusal({1, 2}, {1}), "--tensor-parallel: cannot be combined with --reproducible");
}

TEST(Plan, AnOlderBuildHasNoGrids) {
  Experiment grids = experiment(Mode::same_cores, {2});
  grids.tensor_parallel = {1, 2};
  const Plan plan = plan_contestants(grids, {program(1)});
  EXPECT_EQ(plan.contestants.size(), 1u);
  ASSERT_EQ(plan.left_out.size(), 1u);
  EXPECT_EQ(plan.left_out[0].who, "Stage 1, 2 ranks, tensor 2");
  EXPECT_EQ(plan.left_out[0].why, "stage_train has no --tensor-parallel");
}

TEST(Contestant, HasANameOfItsOwn) {
  Contestant who = contestant(3, 2);
  EXPECT_EQ(who.name(), "stage3-emulated-2-ranks-batch-8");
  EXPECT_EQ(who.label(), "Stage 3, emulated, 2 ranks");
  who.reproducible = true;
  who.one_of_several_batches = true;
  EXPECT_EQ(who.name(), "stage3-emulated-2-ranks-batch-8-reproducible");
  EXPECT_EQ(who.label(), "Stage 3, emulated, 2 ranks, batch 8, reproducible");
  EXPECT_EQ(contestant(1, 1).label(), "Stage 1, 1 rank");
  EXPECT_EQ(contestant(0).name(), "stage0-batch-8");
  who = contestant(1, 8);
  who.tensor_ranks = 4;
  who.pipeline_stages = 2;
  EXPECT_EQ(who.name(), "stage1-8-ranks-tensor-4-pipeline-2-batch-8");
  EXPECT_EQ(who.label(), "Stage 1, 8 ranks, tensor 4, pipeline 2");
}

TEST(Contestant, HasNoMoreCoresThanThereAre) {
  EXPECT_EQ(contestant(1, 2, 3).cores_text(), "2 × 3");
  EXPECT_EQ(contestant(1, 2, 2).resources(8), 4);
  EXPECT_EQ(contestant(1, 2, 2).resources(0), 1);
  EXPECT_EQ(contestant(1, 4, 1).resources(2), 2);
  Contestant gpu = contestant(3, 4, 2);
  gpu.program.hardware = Hardware::gpu;
  EXPECT_EQ(gpu.resources(2), 4);
  EXPECT_EQ(gpu.cores_text(), "4 GPUs");
}

TEST(Flags, AreReplacedByAConfigurationAndByThoseHandedOn) {
  const FlagList configuration = FlagList::of_settings({{"n_layer", 3},
                                                        {"n_embd", 128},
                                                        {"dropout", 0.1},
                                                        {"run_dir", "there"},
                                                        {"threads", 9},
                                                        {"no_fused", true},
                                                        {"overfit_batch", false},
                                                        {"min_lr", nullptr}});
  const FlagList flags =
      experiment_flags(configuration, FlagList::parse(words("--n-embd=32 --data a b --steps 7")));
  EXPECT_EQ(flags.value("--n-layer"), "3");
  EXPECT_EQ(flags.value("--n-embd"), "32");
  EXPECT_EQ(flags.value("--dropout"), "0.1");
  EXPECT_EQ(flags.value("--steps"), "7");
  EXPECT_TRUE(flags.has("--no-fused"));
  for (const char* absent : {"--overfit-batch", "--min-lr", "--run-dir", "--threads"}) {
    EXPECT_FALSE(flags.has(absent)) << absent;
  }
  const Texts all = flags.arguments();
  const auto data = std::ranges::find(all, "--data");
  EXPECT_EQ((Texts{data, data + 3}), (Texts{"--data", "a", "b"}));
}

// The settings of an earlier run. A setting that is null there is derived again, and is not taken from the
// default experiment.
TEST(Flags, ThatARunDerivedAreDerivedAgain) {
  const FlagList run = FlagList::of_settings(
      {{"model", "nano"}, {"n_layer", nullptr}, {"tokenizer", nullptr}, {"derived", {{"n_layer", 4}}}});
  const FlagList flags = experiment_flags(run, {});
  for (const char* absent : {"--n-layer", "--n-embd", "--tokenizer", "--derived"}) {
    EXPECT_FALSE(flags.has(absent)) << absent;
  }
  EXPECT_EQ(flags.value("--batch-size"), "8");
}

TEST(Flags, OfTheDefaultSizesGiveWayToAModel) {
  const FlagList flags = experiment_flags({}, FlagList::parse(Texts{"--model", "gpt2", "--n-layer", "3"}));
  EXPECT_EQ(flags.value("--n-layer"), "3");
  EXPECT_FALSE(flags.has("--n-embd"));
  EXPECT_FALSE(flags.has("--block-size"));
}

// Validation, samples and checkpoints are switched off, because they would add to the measured time.
TEST(Flags, AskForTrainingAlone) {
  const FlagList asked =
      FlagList::parse(words("--eval-every 5 --checkpoint-every 5 --sample-every 5 --max-new-tokens 5"));
  const FlagList flags = experiment_flags(FlagList::of_settings({{"val_fraction", 0.5}}), asked);
  EXPECT_EQ(flags.value("--eval-every"), "1000000000");
  EXPECT_EQ(flags.value("--checkpoint-every"), "1000000000");
  for (const char* none : {"--val-fraction", "--sample-every", "--max-new-tokens"}) {
    EXPECT_EQ(flags.value(none), "0") << none;
  }
}

TEST(Flags, ThatOnlySomeStagesKnowAreGivenToThose) {
  const FlagList flags = FlagList::parse(words("--steps 7 --comm flat --stpes 8"));
  EXPECT_EQ(flags.known_to({"--steps"}, {"--steps", "--comm"}).arguments(),
            (Texts{"--steps", "7", "--stpes", "8"}));
}

TEST(OwnWords, AreNotTheLaunchers) {
  const std::string launcher =
      std::string(70, '-') + "\nPrimary job terminated normally, but\n" + std::string(70, '-') + '\n';
  EXPECT_EQ(error_message("note: x\nstage3_train: no GPU: none\n" + launcher), "no GPU: none");
  EXPECT_EQ(error_message("some library: broken_train: y\nlast\n\n" + launcher), "last");
  EXPECT_EQ(before_launcher("a\nb\n" + launcher), "a\nb\n");
  EXPECT_EQ(before_launcher(launcher), launcher);
  EXPECT_EQ(error_message(""), "");
}

}  // namespace
}  // namespace stagegpt::compare::test
