// The parts of an experiment: its flags, its contestants, the results that are read from a run, and its
// directory.
#include "tools/compare/experiment.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/compare/fake_stages.h"
#include "tests/compare/made_comparison.h"
#include "tests/support/patterns.h"
#include "tools/compare/report_directory.h"
#include "tools/compare/trial.h"

namespace stagegpt::compare::test {
namespace {

using Texts = std::vector<std::string>;
using stagegpt::test::operator+;
using stagegpt::test::words;

Texts flags(const Texts& configuration, const Texts& handed_on) {
  return experiment_flags(FlagList::parse(configuration), FlagList::parse(handed_on)).arguments();
}

TEST(ExperimentFlags, AreThoseOfASmallModelAndOfTrainingAlone) {
  const Texts never = words(
      "--eval-every 1000000000 --checkpoint-every 1000000000 --val-fraction 0 --sample-every 0 "
      "--max-new-tokens 0");
  const Texts small = words(
      "--data data/dummy.txt --tokenizer char --n-layer 2 --n-head 2 --n-embd 64 --block-size 32 "
      "--batch-size 8 --steps 20");
  EXPECT_EQ(flags({}, {}), small + never);
  const Texts gpt2 = words("--data data/dummy.txt --tokenizer char --batch-size 8 --steps 20 --model gpt2");
  EXPECT_EQ(flags({"--model", "gpt2"}, {}), gpt2 + never);
  EXPECT_EQ(flags({}, {"--model", "gpt2"}), gpt2 + never);
}

TEST(ExperimentFlags, ThatAreItsOwnAreRefusedBehindTheDashesAndLeftOutOfAConfiguration) {
  for (const std::string own : {"--run-dir", "--resume", "--threads", "--reproducible", "--json", "--dry-run",
                                "--config", "--print-config", "--trace-steps", "--profile", "--profile-steps",
                                "--help", "--version", "--val-fraction", kTensorFlag, kPipelineFlag}) {
    EXPECT_EQ(message<UserError>([&] { flags({}, {own}); }),
              own + ": not allowed after --, because compare_stages sets it for each run");
    const Texts all = flags({own, "9"}, {});
    EXPECT_EQ(std::ranges::count(all, own), own == "--val-fraction" ? 1 : 0) << own;
    EXPECT_EQ(std::ranges::count(all, "9"), 0) << own;
  }
}

TEST(Experiment, ReadsBatchAndMicroStepsOfItsFlags) {
  Experiment experiment;
  experiment.flags = {{"--batch-size", {"1048576"}}};
  EXPECT_EQ(experiment.batch_size(), 1048576);
  EXPECT_EQ(experiment.micro_steps(), 1);
  experiment.flags = {{"--batch-size", {"0"}}, {"--grad-accumulation", {"3"}}};
  EXPECT_EQ(experiment.micro_steps(), 3);
  EXPECT_EQ(message<UserError>([&] { experiment.batch_size(); }),
            "--batch-size: expected a whole number from 1 to 1048576, not '0'");
  experiment.flags.set("--grad-accumulation", {"1048577"});
  EXPECT_EQ(message<UserError>([&] { experiment.micro_steps(); }),
            "--grad-accumulation: expected a whole number from 1 to 1048576, not '1048577'");
}

TEST(ParseNumbers, GivesThemInOrderAndOnce) {
  EXPECT_EQ(parse_numbers("--ranks", "8,1,8", 1, 8), (std::vector<std::int64_t>{1, 8}));
  EXPECT_EQ(message<UserError>([] { parse_numbers("--ranks", "", 1, 8); }),
            "--ranks: expected comma-separated numbers, not ''");
  EXPECT_EQ(message<UserError>([] { parse_numbers("--ranks", "1,9", 1, 8); }),
            "--ranks: expected a whole number from 1 to 8, not '9'");
  EXPECT_THROW(parse_numbers("--ranks", "1,,2", 1, 8), UserError);
}

TEST(FlagLists, AreReadFromACommandLine) {
  const FlagList list = FlagList::parse(words("--a 1 -2 --b=x=y --c -- --d="));
  EXPECT_EQ(list.arguments(), (Texts{"--a", "1", "-2", "--b", "x=y", "--c", "--", "--d", ""}));
  EXPECT_EQ(list.value("--a"), "1");
  EXPECT_EQ(list.value("--d"), "");
  EXPECT_EQ(FlagList::parse(Texts{"--a"}).value("--a"), std::nullopt);
  EXPECT_EQ(list.value("--e"), std::nullopt);
  EXPECT_EQ(message<UserError>([] {
              FlagList::parse(Texts{"x", "--a"});
            }),
            "after --: expected flags of stageN_train, not 'x'");
  // The last one counts.
  EXPECT_EQ(FlagList::parse(Texts{"--a", "1", "--b", "--a=2"}).arguments(), (Texts{"--b", "--a", "2"}));
}

TEST(FlagLists, AreReadFromSettings) {
  const nlohmann::json settings =
      nlohmann::json::parse(R"({"a_b":"x","b":2,"c":0.5,"d":true,"e":false,"f":null,"derived":{"g":1}})");
  EXPECT_EQ(FlagList::of_settings(settings).arguments(), words("--a-b x --b 2 --c 0.5 --d"));
  FlagList all = {{"--f", {"1"}}, {"--e", {}}, {"--b", {"1"}}};
  all.update(FlagList::of_settings(settings));
  EXPECT_EQ(all.arguments(), words("--e --b 2 --a-b x --c 0.5 --d"));
  EXPECT_EQ(message<UserError>([] { FlagList::of_settings(nlohmann::json::array()); }),
            "expected a JSON object");
  EXPECT_EQ(message<UserError>([] {
              FlagList::of_settings({{"a", nlohmann::json::array()}});
            }),
            "a: expected a number, a string, true or false");
}

TEST(FlagLists, KnowWhatHelpLists) {
  EXPECT_EQ(flags_in_help("Usage: x --no\n--a\n   --b=N   text --c\n  --d,--e  text\n\n  -f  --g\n"),
            (std::set<std::string>{"--a", "--b", "--d"}));
}

Experiment planned(Mode mode, std::vector<std::int64_t> ranks, std::int64_t cores) {
  Experiment experiment;
  experiment.flags = {{"--batch-size", {"8"}}};
  experiment.mode = mode;
  experiment.ranks = std::move(ranks);
  experiment.cores = cores;
  return experiment;
}

TEST(PlanDetails, SayWhyABatchIsLeftOut) {
  const Plan plan = plan_contestants(planned(Mode::same_cores, {1, 3, 4, 16}, 4), {program(0), program(1)});
  Texts labels, reasons;
  for (const Contestant& one : plan.contestants)
    labels.push_back(one.label() + (one.timed ? "" : ", not timed"));
  for (const LeftOut& out : plan.left_out) reasons.push_back(out.who + ": " + out.why);
  EXPECT_EQ(labels, (Texts{"Stage 0", "Stage 1, 1 rank", "Stage 1, 4 ranks",
                           "Stage 0, reproducible, not timed", "Stage 1, 4 ranks, reproducible, not timed"}));
  EXPECT_EQ(
      reasons,
      (Texts{"Stage 1, 3 ranks: --batch-size: 8 is not divisible by the number of ranks, 3; use 6 or 9",
             "Stage 1, 16 ranks: --batch-size: 8 is not divisible by the number of ranks, 16; use 16"}));
  EXPECT_EQ(plan.contestants[4].threads, 1);
  EXPECT_EQ(plan.contestants[3].threads, 4);
}

// --ranks does not apply to a stage that has no ranks.
TEST(PlanDetails, RefuseRanksThatWereAskedForOfStagesThatHaveThem) {
  Experiment experiment = planned(Mode::weak, {1, 3}, 7);
  experiment.ranks_are_asked_for = true;
  const Plan plan = plan_contestants(experiment, {program(0), program(1), program(3)});
  ASSERT_EQ(plan.contestants.size(), 6u);
  EXPECT_EQ(plan.contestants[5].label(), "Stage 3, 3 ranks, batch 24");
  EXPECT_EQ(plan.contestants[5].threads, 2);
  EXPECT_EQ(plan.contestants[0].threads, 2);
  experiment.mode = Mode::strong;
  EXPECT_EQ(message<UserError>([&] { plan_contestants(experiment, {program(1)}); }),
            "--batch-size: 8 is not divisible by the number of ranks, 3; use 6 or 9");
  experiment.flags.set("--batch-size", {"4"});
  experiment.reproducible_pass = true;
  experiment.ranks = {1};
  EXPECT_EQ(plan_contestants(experiment, {program(0)}).left_out.at(0).why,
            "--batch-size: 4 is not divisible by the 8 sub-batches of --reproducible; use 8");
}

std::string line(int step, double tokens, double loss, int memory) {
  return concat(
      "{\"step\":", step, ",\"tokens\":", tokens, ",\"loss\":", loss,
      ",\"grad_norm\":1,\"seconds\":0.5,\"ms\":{\"data\":1,\"forward\":2,\"backward\":3,\"communication\":4,"
      "\"optimizer\":5},\"peak_memory_bytes\":",
      memory, "}\n");
}

TEST(ParseMetrics, ReadsEachLineAndNamesIt) {
  const Trial trial = parse_metrics(line(1, 64, 4, 9) + line(2, 128, 3, 7));
  ASSERT_EQ(trial.steps.size(), 2u);
  EXPECT_EQ(trial.steps[1].loss, 3);
  EXPECT_EQ(trial.steps[1].seconds, 0.5);
  EXPECT_EQ(trial.steps[1].ms, (PhaseMs{1, 2, 3, 4, 5}));
  EXPECT_EQ(trial.tokens_per_step, 64);
  EXPECT_EQ(trial.peak_memory_bytes, 9);
  const std::string no_norm =
      stagegpt::test::replace_matches(line(1, 64, 4, 9), "\"grad_norm\":1", "\"grad_norm\":null");
  EXPECT_TRUE(std::isnan(parse_metrics(no_norm).steps.at(0).grad_norm));
  EXPECT_EQ(message<std::runtime_error>([] { parse_metrics(line(1, 64, 4, 9) + line(3, 64, 4, 9)); }),
            "metrics.jsonl, line 2: expected step 2, got 3");
  EXPECT_EQ(message<std::runtime_error>([] { parse_metrics(""); }), "metrics.jsonl has no steps");
  for (const std::string& broken : {std::string("{}"), line(1, 64, 4, 9).substr(9)})
    EXPECT_THROW(parse_metrics(broken), std::runtime_error) << broken;
}

TEST(TimingDetails, AreMediansOfTheStepsAfterTheWarmUp) {
  Trial run = trial(4, 0.5);
  for (std::size_t i = 0; i < 4; ++i) {
    run.steps[i].seconds = std::array{8.0, 1.0, 2.0, 4.0}[i];
    run.steps[i].ms = {1.0 * static_cast<double>(i), 2, 3, 2, 1};
  }
  EXPECT_EQ(timing(run, 0).step_ms, 3000);
  EXPECT_EQ(timing(run, 2).step_ms, 3000);
  EXPECT_EQ(timing(run, 3).step_ms, 4000);
  EXPECT_EQ(timing(run, 1).tokens_per_second, 128);
  EXPECT_EQ(timing(run, 1).ms, (PhaseMs{2, 2, 3, 2, 1}));
  EXPECT_EQ(timing(run, 1).communication_share, 0.2);
  EXPECT_TRUE(std::isnan(timing(run, 4).step_ms));  // no step is left
  for (StepRecord& step : run.steps) step.ms = {};
  EXPECT_EQ(timing(run, 0).communication_share, 0);
}

class ReportDirectoryTest : public testing::Test {
 protected:
  fs::path path() const { return scratch_.path() / "report"; }
  std::string refused(bool overwrite) const {
    std::string text = message<UserError>([&] { ReportDirectory(path(), overwrite); });
    const std::size_t at = text.find(scratch_.path().string() + '/');
    return at == text.npos ? text : text.erase(at, scratch_.path().string().size() + 1);
  }
  stagegpt::test::ScratchDirectory scratch_;
};

TEST_F(ReportDirectoryTest, HoldsTheReportsAndTheRuns) {
  const ReportDirectory directory(path(), false);
  EXPECT_EQ(directory.path(), path());
  EXPECT_FALSE(fs::exists(path()));
  directory.begin();
  directory.write(made_comparison());
  scratch_.write("report/runs/old", "");
  std::set<std::string> names;
  for (const auto& file : fs::directory_iterator(path())) names.insert(file.path().filename());
  EXPECT_EQ(names, (std::set<std::string>{"index.html", "profiles", "results.json", "runs"}));
  EXPECT_TRUE(stagegpt::test::read_bytes(path() / "results.json")
                  .starts_with("{\n \"format\": \"stagegpt comparison\",\n"));
  EXPECT_TRUE(stagegpt::test::read_bytes(path() / "index.html").starts_with("<!doctype html>"));

  EXPECT_EQ(refused(false), "--output: \"report\" contains a comparison; --overwrite replaces it");
  scratch_.write("report/results.json.tmp", "of one that was killed");
  EXPECT_EQ(refused(true), "(nothing)");
  ReportDirectory(path(), true).begin();
  EXPECT_FALSE(fs::exists(path() / "runs" / "old"));
  EXPECT_FALSE(fs::exists(path() / "index.html"));
}

TEST_F(ReportDirectoryTest, IsNoOtherDirectory) {
  scratch_.write("report", "");
  EXPECT_EQ(refused(true), "--output: \"report\" is not a directory");
  fs::remove(path());
  fs::create_directory(path());
  EXPECT_EQ(refused(false), "(nothing)");  // empty
  scratch_.write("report/index.html", "");
  EXPECT_EQ(refused(true), "--output: \"report\" is not empty, and contains no comparison");
  for (const char* other : {"nonsense", R"({"format": "another"})", "[]"}) {
    scratch_.write("report/results.json", other);
    EXPECT_EQ(refused(true), "--output: \"report\" is not empty, and contains no comparison") << other;
  }
  scratch_.write("report/results.json", R"({"format": "stagegpt comparison"})");
  EXPECT_EQ(refused(true), "(nothing)");
  scratch_.write("report/mine", "");
  EXPECT_EQ(refused(true), "--output: \"report\" is not empty: it contains \"mine\"");
}

}  // namespace
}  // namespace stagegpt::compare::test
