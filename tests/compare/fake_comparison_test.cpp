// A whole comparison of fake stages (shell scripts), run in this process: which commands are started, in
// which order, and how their results are used.
#include <gtest/gtest.h>

#include "common/base/json.h"
#include "common/checkpoint/safetensors.h"
#include "common/io/content_hash.h"
#include "tests/compare/fake_stages.h"
#include "tests/support/golden.h"
#include "tests/support/on_a_terminal.h"
#include "tests/support/patterns.h"
#include "tools/compare/compare.h"
#include "tools/compare/runner.h"

namespace stagegpt::compare::test {
namespace {

using Words = std::vector<std::string>;
using stagegpt::test::expect_golden;
using stagegpt::test::read_bytes;

class FakeComparison : public FakeStages {
 protected:
  FakeComparison() {
    mpirun();
    stage("stage0_train");
    FakeProgram of_ranks;
    of_ranks.help += "; echo '  --comm NAME'";
    stage("stage1_train", of_ranks);
    options_.output = folder() / "report";
    options_.title = "A title";
    options_.author = "An author";
    options_.command = {"compare_stages", "--output"};
    options_.choice.programs = folder();
    options_.choice.stages = {0, 1};
    options_.experiment.flags = {{"--batch-size", {"8"}}, {"--data", {"text"}}, {"--comm", {"flat"}}};
    options_.experiment.cores = 4;
    options_.experiment.ranks = {1, 2};
    options_.experiment.repeats = 2;
    options_.experiment.warmup = 0;
    options_.experiment.reproducible_pass = false;
    options_.timelines = false;
    options_.cancelled = [] { return false; };
  }

  // Restricts the comparison to one run of stage 0.
  void once() {
    options_.choice.stages = {0};
    options_.experiment.repeats = 1;
  }

  // Runs the comparison. said_ is its standard error, in which each time is replaced by "T s"; said_seconds_
  // is the sum of these times.
  Comparison run() {
    testing::internal::CaptureStderr();
    try {
      Comparison comparison = compare(options_);
      said_ = testing::internal::GetCapturedStderr();
      const char* time = ": ([0-9.]+) s";
      said_seconds_ = 0;
      for (const auto& found : stagegpt::test::all_groups(said_, time)) said_seconds_ += std::stod(found[0]);
      said_ = stagegpt::test::replace_matches(said_, time, ": T s");
      return comparison;
    } catch (...) {
      testing::internal::GetCapturedStderr();
      throw;
    }
  }

  std::string failure_of(const FakeProgram& program) {
    once();
    options_.overwrite = true;
    stage("stage0_train", program);
    const Comparison comparison = run();
    EXPECT_TRUE(comparison.entries[0].trials.empty());
    return comparison.entries[0].failure;
  }

  // Writes a trace of step `step` for a fake program: a loss and a weight.
  void trace(const std::string& stage, int step, float loss, float weight) const {
    fs::create_directories(folder() / (stage + ".traces"));
    SafetensorsWriter writer(folder() / (stage + ".traces") / concat("step_0000000", step, ".safetensors"),
                             {{"00000 the loss", {1}}, {"00001 the weight w", {2}}});
    writer.append(std::vector{loss});
    writer.append(std::vector{weight, 2.0f});
    writer.finish();
  }

  CompareOptions options_;
  std::string said_;
  double said_seconds_ = 0;
};

TEST_F(FakeComparison, RunsTheContestantsInTurns) {
  const Comparison comparison = run();
  EXPECT_TRUE(comparison.passed());
  EXPECT_GT(comparison.seconds, 0);
  EXPECT_GT(said_seconds_, 0);
  EXPECT_LE(said_seconds_, 1.01 * comparison.seconds);  // three digits are said
  expect_golden(calls(), "compare/calls.txt");
  EXPECT_EQ(said_,
            "[1/6] Stage 0, run 1: T s, loss 2.00\n[2/6] Stage 1, 1 rank, run 1: T s, loss 2.00\n"
            "[3/6] Stage 1, 2 ranks, run 1: T s, loss 2.00\n[4/6] Stage 0, run 2: T s, loss 2.00\n"
            "[5/6] Stage 1, 1 rank, run 2: T s, loss 2.00\n[6/6] Stage 1, 2 ranks, run 2: T s, loss 2.00\n");
  ASSERT_EQ(comparison.entries.size(), 3u);
  for (const Entry& entry : comparison.entries) EXPECT_EQ(entry.trials.size(), 2u);
  std::set<std::string> left;  // the files kept of a run; no checkpoints
  for (const auto& file : fs::directory_iterator(options_.output / "runs" / "stage1-2-ranks-batch-8-2")) {
    left.insert(file.path().filename());
  }
  EXPECT_EQ(left, std::set<std::string>{"metrics.jsonl"});
}

// The other build is the reference. Its bits may differ, also with --reproducible.
TEST_F(FakeComparison, RunsAnotherBuildInTurns) {
  fs::create_directory(folder() / "other");
  stage("other/stage0_train");
  options_.choice.stages = {0};
  options_.choice.against = folder() / "other";
  options_.experiment.reproducible_pass = true;
  stage("stage0_train", {.train = "echo other weights > \"$run/latest/model.safetensors\""});
  Comparison comparison = run();
  EXPECT_TRUE(comparison.passed());
  EXPECT_EQ(said_,
            "[1/6] Stage 0, other build, run 1: T s, loss 2.00\n[2/6] Stage 0, run 1: T s, loss 2.00\n"
            "[3/6] Stage 0, other build, reproducible, run 1: T s, loss 2.00\n"
            "[4/6] Stage 0, reproducible, run 1: T s, loss 2.00\n"
            "[5/6] Stage 0, other build, run 2: T s, loss 2.00\n[6/6] Stage 0, run 2: T s, loss 2.00\n");
  EXPECT_TRUE(fs::exists(options_.output / "runs" / "stage0-other-build-batch-8-2"));
  EXPECT_TRUE(fs::exists(options_.output / "runs" / "stage0-batch-8-2"));

  metrics("stage0_train", {4, 3, 2.5});
  options_.overwrite = true;
  comparison = run();
  EXPECT_FALSE(comparison.passed());
  const auto failed = std::ranges::find_if(comparison.checks, [](const Check& one) { return !one.passed(); });
  ASSERT_NE(failed, comparison.checks.end());
  const Check& check = *failed;
  EXPECT_EQ(comparison.subject(check).contestant.label(), "Stage 0");
  EXPECT_EQ(comparison.reference(check).contestant.label(), "Stage 0, other build");
  EXPECT_EQ(check.first->step, 3);
}

// On a terminal, the last line shows the current run. It is cut to the terminal's width.
TEST_F(FakeComparison, ShowsTheRunThatGoesOnOnATerminal) {
  once();
  options_.overwrite = true;
  const auto shown = [&](unsigned short columns) {
    const std::string text = stagegpt::test::on_a_terminal([&] { compare(options_); }, columns);
    return stagegpt::test::replace_matches(text, ": [0-9.]+ s", ": T s");
  };
  const std::string rewritten = "\r\x1b[J", run = "[1/1] Stage 0, run 1",
                    ended = run + ": T s, loss 2.00\r\n";
  EXPECT_EQ(shown(80), concat(rewritten, run, " …", rewritten, ended, run, " …\r\n"));
  EXPECT_EQ(shown(15), concat(rewritten, "[1/1] Stage 0,", rewritten, ended, "[1/1] Stage 0,\r\n"));
}

TEST_F(FakeComparison, KnowsWhatTheProgramsSay) {
  options_.experiment.repeats = 1;
  options_.experiment.ranks = {2};
  const Comparison comparison = run();
  EXPECT_EQ(comparison.title, "A title");
  EXPECT_EQ(comparison.author, "An author");
  EXPECT_EQ(comparison.command, (Words{"compare_stages", "--output"}));
  EXPECT_EQ(comparison.model, "a model of stage0_train");
  EXPECT_EQ(comparison.data, "some text, 9 tokens");
  EXPECT_EQ(comparison.settings.dump(), R"({"n_layer":7})");
  EXPECT_EQ(comparison.provenance["libraries"]["mpi"], "mpirun (Open MPI) 9.9");
  EXPECT_EQ(comparison.experiment.cores, 4);
  const Entry& ranks = comparison.entries.at(1);
  EXPECT_EQ(ranks.machine, "that of stage1_train");
  EXPECT_EQ(ranks.command,
            (Words{"mpirun", "--oversubscribe", "--bind-to", "none", "-np", "2", folder() / "stage1_train",
                   "--batch-size", "8", "--data", "text", "--comm", "flat", "--threads", "2", "--run-dir",
                   options_.output / "runs" / "stage1-2-ranks-batch-8-1"}));
  const Trial& trial = ranks.trials.at(0);
  EXPECT_EQ(trial.steps.at(2).loss, 2);
  EXPECT_EQ(trial.steps[2].grad_norm, 0.25);
  EXPECT_EQ(trial.tokens_per_step, 64);
  EXPECT_EQ(trial.peak_memory_bytes, 1048576);  // the maximum, in the first step
  EXPECT_EQ(trial.weights_xxh3_128, hash_of_file(directory_.write("same", "weights\n")));
}

TEST_F(FakeComparison, MeasuresTheLoadOfWhatItStartsItself) {
  options_.mpirun = (folder() / "mpirun").string();
  options_.experiment.repeats = 1;
  stage("stage1_train", {.train = "sleep 0.3"});
  const Comparison comparison = run();
  ASSERT_EQ(comparison.entries.size(), 3u);
  EXPECT_FALSE(comparison.entries[1].trials.at(0).load);
}

TEST_F(FakeComparison, TellsHowARunHasEnded) {
  EXPECT_EQ(failure_of({.train = "for i in 1 2 3 4 5 6 7 8 9; do echo line $i >&2; done; exit 3"}),
            "exit code 3:\nline 2\nline 3\nline 4\nline 5\nline 6\nline 7\nline 8\nline 9");
  EXPECT_TRUE(said_.starts_with("[1/1] Stage 0, run 1: T s, FAILED: exit code 3:\nline 2\n")) << said_;
  EXPECT_EQ(failure_of({.train = "exit 128"}),
            "exit code 128:\nnote: of stage0_train\nmachine: that of stage0_train");
  EXPECT_EQ(failure_of({.train = "kill -9 $$"}),
            "ended by signal 9:\nnote: of stage0_train\nmachine: that of stage0_train");
  EXPECT_EQ(
      failure_of(
          {.train = "cd $folder; echo report/*.html report/results.* >&2; exit 1"}),  // exists during the run
      "exit code 1:\nnote: of stage0_train\nmachine: that of stage0_train\n"
      "report/index.html report/results.json");
  const std::string no_weights = failure_of({.train = "rm \"$run/latest/model.safetensors\""});
  EXPECT_NE(no_weights.find("latest/model.safetensors"), std::string::npos) << no_weights;
  EXPECT_EQ(failure_of({.train = "echo nonsense > \"$run/metrics.jsonl\""}).substr(0, 22),
            "metrics.jsonl, line 1:");
  options_.timeout_seconds = 1.5;
  EXPECT_TRUE(stagegpt::test::matches(failure_of({.train = "exec sleep 20"}),
                                      "did not end within 1\\.[5-9][0-9]* s; see --timeout-seconds:\n"
                                      "note: of stage0_train\nmachine: that of stage0_train"));
}

TEST_F(FakeComparison, RunsNobodyAgainWhoHasFailed) {
  options_.experiment.ranks = {1};
  stage("stage0_train", {.train = "exit 3"});
  const Comparison comparison = run();
  EXPECT_EQ(comparison.entries[0].trials.size(), 0u);
  EXPECT_EQ(comparison.entries[1].trials.size(), 2u);
  EXPECT_EQ(said_.find("Stage 0, run 2"), std::string::npos) << said_;
}

TEST_F(FakeComparison, RefusesWhoCannotBegin) {
  once();
  stage("stage0_train", {.dry_run = "echo 'stage0_train: --n-head: bad' >&2; exit 2"});
  EXPECT_EQ(message<UserError>([&] { run(); }), "--n-head: bad");
  stage("stage0_train", {.dry_run = "echo 'stage0_train: broken' >&2; exit 1"});
  EXPECT_EQ(message<std::runtime_error>([&] { run(); }), "Stage 0: exit code 1: broken");
  EXPECT_FALSE(fs::exists(options_.output));
  options_.choice.stages = {};
  options_.choice.programs = folder() / "nowhere";
  EXPECT_EQ(
      without_folder(message<UserError>([&] { run(); })),
      "no stage can run here: stage0_train is not in FOLDER/nowhere; build it, or name its directory with "
      "--programs");
}

// The batch of 8 cannot be divided among three ranks.
TEST_F(FakeComparison, RefusesThatNobodyIsLeft) {
  options_.choice.stages = {1};
  options_.experiment.ranks = {3};
  EXPECT_EQ(message<UserError>([&] { run(); }), "--stages: none of these stages can run");
}

// A number of ranks that cannot start is left out, for example more ranks than GPUs.
TEST_F(FakeComparison, LeavesOutTheRanksThatCannotBegin) {
  options_.experiment.repeats = 1;
  const FakeProgram alone = {.dry_run =
                                 R"(if [ "$FAKE_RANKS" = 2 ]; then echo "stage1_train: no" >&2; exit 2; fi)"};
  stage("stage1_train", alone);
  const Comparison comparison = run();
  ASSERT_EQ(comparison.left_out.size(), 1u);
  EXPECT_EQ(comparison.left_out[0].who, "Stage 1, 2 ranks");
  EXPECT_EQ(comparison.left_out[0].why, "no");
  EXPECT_EQ(comparison.entries.size(), 2u);
  options_.overwrite = true;
  options_.experiment.ranks_are_asked_for = true;
  EXPECT_EQ(message<UserError>([&] { run(); }), "no");
}

// A rank may warn before it names its model.
TEST_F(FakeComparison, NamesTheModelAndNotAWarningBeforeIt) {
  options_.experiment.repeats = 1;
  const std::string names = FakeProgram().dry_run;
  for (const char* program : {"stage0_train", "stage1_train"})
    stage(program, {.dry_run = "echo 'warning: 3 threads share 2 cores: slow' >&2; " + names});
  EXPECT_EQ(run().model, "a model of stage0_train");
}

TEST_F(FakeComparison, RunsOnceMoreReproducibly) {
  options_.experiment.repeats = 1;
  options_.experiment.reproducible_pass = true;
  const Comparison comparison = run();
  ASSERT_EQ(comparison.entries.size(), 5u);
  EXPECT_EQ(comparison.entries[4].contestant.label(), "Stage 1, 2 ranks, reproducible");
  EXPECT_EQ(comparison.entries[4].command.at(15), "--reproducible");
  EXPECT_EQ(comparison.checks.back().kind, Check::Kind::bits);
}

TEST_F(FakeComparison, IsInterrupted) {
  once();
  options_.experiment.repeats = 5;
  const auto report = [&] { return read_bytes(options_.output / "results.json"); };
  options_.cancelled = [] { return true; };
  EXPECT_EQ(message<std::runtime_error>([&] { run(); }), "interrupted before the first run");
  EXPECT_FALSE(fs::exists(options_.output));
  options_.cancelled = [&] { return fs::exists(options_.output / "runs" / "stage0-batch-8-2"); };
  stage("stage0_train", {.train = "case $run in *-2) exec sleep 20;; esac"});
  const Comparison comparison = run();
  EXPECT_TRUE(comparison.interrupted);
  EXPECT_EQ(comparison.entries[0].trials.size(), 1u);
  EXPECT_NE(report().find("\"interrupted\": true"), std::string::npos);
  EXPECT_FALSE(fs::exists(options_.output / "runs" / "stage0-batch-8-2" / "checkpoints"));
}

// In runs of their own after the timed ones, and not of reproducible runs, which are not timed.
TEST_F(FakeComparison, RecordsAStepOfEachContestant) {
  options_.timelines = true;
  options_.experiment.ranks = {1};
  options_.experiment.reproducible_pass = true;
  options_.experiment.warmup = 1;
  directory_.write(
      "a_profile",
      R"({"otherData": {}, "traceEvents": [{"ph": "X", "name": "step", "cat": "step", "pid": 0, )"
      R"("tid": 1, "ts": 5, "dur": 2500, "args": {"number": 3}}]})");
  FakeProgram recorded;
  recorded.help += "; echo '  --profile FILE'";
  recorded.train =
      "while [ $# -gt 0 ]; do [ \"$1\" = --profile ] && cp \"$folder/a_profile\" \"$2\"; shift; done";
  stage("stage0_train", recorded);
  Comparison comparison = run();
  EXPECT_TRUE(comparison.passed());
  EXPECT_TRUE(
      said_.ends_with("[6/6] Stage 1, 1 rank, run 2: T s, loss 2.00\nrecording a timeline: Stage 0\n"
                      "recording a timeline: Stage 1, 1 rank\n"
                      "warning: no timeline of Stage 1, 1 rank: \"stage1_train\" has no --profile\n"))
      << said_;
  EXPECT_TRUE(
      calls().ends_with("stage0_train --batch-size 8 --data text --threads 4 --run-dir "
                        "report/runs/stage0-batch-8-profiled --profile "
                        "report/profiles/stage0-batch-8.json --profile-steps 2:3 --stop-after 3\n"));
  const Recording& recording = comparison.entries[0].recording.value();
  EXPECT_EQ(recording.profile, "profiles/stage0-batch-8.json");
  EXPECT_EQ(recording.failure, "");
  EXPECT_EQ(recording.timeline.step, 3);
  EXPECT_DOUBLE_EQ(recording.timeline.ms, 2.5);
  EXPECT_TRUE(fs::exists(options_.output / recording.profile));
  EXPECT_FALSE(fs::exists(options_.output / "runs/stage0-batch-8-profiled/checkpoints"));
  EXPECT_EQ(comparison.entries[2].contestant.label(), "Stage 0, reproducible");
  EXPECT_FALSE(comparison.entries[2].recording);

  options_.overwrite = true;
  recorded.train = "case $run in *profiled) echo 'stage0_train: --profile: it cannot' >&2; exit 2;; esac";
  stage("stage0_train", recorded);
  comparison = run();
  EXPECT_TRUE(comparison.passed());  // its results agree all the same
  EXPECT_EQ(comparison.entries[0].recording->failure, "exit code 2: --profile: it cannot");
}

TEST_F(FakeComparison, LooksForTheFirstTensorOfAStageThatDisagrees) {
  options_.experiment.repeats = 1;
  options_.experiment.limits = {.loss = 0.001, .grad_norm = 0.01};
  metrics("stage1_train", {4, 3.75, 2});
  for (const int step : {1, 2}) {
    trace("stage0_train", step, 4, 1);
    trace("stage1_train", step, step == 1 ? 4.003f : 5, 1);  // step 1 is within the limit
  }
  calls();
  const Comparison comparison = run();
  EXPECT_TRUE(said_.ends_with("loss 2.00\nlooking for the first tensor that differs: Stage 1, 1 rank\n"))
      << said_;
  ASSERT_EQ(comparison.divergences.size(), 2u);
  const FirstTensor& first = comparison.divergences[0];
  EXPECT_EQ(
      first.text,
      "The first tensor of Stage 1, 1 rank that differs is at step 2: the loss differs by 2.5e-01, more than "
      "1.0e-03.");
  EXPECT_EQ(first.step, 2);
  EXPECT_EQ(first.tensor, "the loss");
  EXPECT_EQ(first.error, 0.25);
  EXPECT_EQ(first.limit, 0.001);
  EXPECT_EQ(comparison.divergences[1].text, "");  // belongs to the same stage
  EXPECT_NE(calls().find("stage0_train --batch-size 8 --data text --threads 4 --run-dir "
                         "report/runs/stage0-batch-8-traced --trace-steps 2 --stop-after 2\n"),
            std::string::npos);
  for (const char* run : {"stage0-batch-8-traced", "stage1-1-rank-batch-8-traced"}) {
    const fs::path traced = options_.output / "runs" / run;
    EXPECT_FALSE(fs::exists(traced / "traces" / "step_00000001.safetensors"));
    EXPECT_TRUE(fs::exists(traced / "traces" / "step_00000002.safetensors"));
    EXPECT_FALSE(fs::exists(traced / "checkpoints"));
  }
}

// Each gradient has the limit given for the norm of all gradients.
TEST_F(FakeComparison, LooksForTheFirstGradientBeyondItsLimit) {
  options_.experiment.repeats = 1;
  options_.experiment.ranks = {1};
  options_.experiment.limits = {.loss = 0.001, .grad_norm = 0.1};
  metrics("stage1_train", {4, 3.75, 2});
  const auto gradient = [&](const std::string& stage, int step, float value) {
    const fs::path traces = folder() / (stage + ".traces");
    fs::create_directories(traces);
    SafetensorsWriter writer(traces / concat("step_0000000", step, ".safetensors"),
                             {{"00000 the gradient of w", {1}}});
    writer.append(std::vector{value});
    writer.finish();
  };
  for (const int step : {1, 2}) {
    gradient("stage0_train", step, 1);
    gradient("stage1_train", step, step == 1 ? 1.05f : 1.25f);
  }
  const Comparison comparison = run();
  ASSERT_EQ(comparison.divergences.size(), 1u);
  EXPECT_EQ(comparison.divergences[0].step, 2);
  EXPECT_EQ(comparison.divergences[0].tensor, "the gradient of w");
  EXPECT_EQ(comparison.divergences[0].limit, 0.1);
}

TEST_F(FakeComparison, FindsNoTensorWhereNoneDiffers) {
  options_.experiment.repeats = 1;
  options_.experiment.ranks = {1};
  metrics("stage1_train", {4, 3, 2.5});
  const auto found = [&] {
    options_.overwrite = true;
    return run().divergences.at(0);
  };
  EXPECT_EQ(found().text.substr(0, 89),
            "The first tensor of Stage 1, 1 rank that differs is unknown: traces: no common step in \"/");
  trace("stage0_train", 1, 4, 1);
  trace("stage1_train", 1, 4, 1);
  EXPECT_EQ(found().text,
            "No tensor of Stage 1, 1 rank differs by more than its limit up to step 3: small differences "
            "have accumulated, or the disagreement did not occur again.");
  EXPECT_FALSE(fs::exists(options_.output / "runs/stage0-batch-8-traced/traces/step_00000001.safetensors"));
  stage("stage1_train", {.train = "case $run in *traced) echo 'stage1_train: gone' >&2; exit 1;; esac"});
  metrics("stage1_train", {4, 3, 2.5});
  EXPECT_EQ(found().text, "The first tensor of Stage 1, 1 rank that differs is unknown: exit code 1: gone");
  EXPECT_EQ(found().step, 0);
  stage("stage1_train", {.help = "echo '  --data FILE'"});
  metrics("stage1_train", {4, 3, 2.5});
  EXPECT_EQ(found().text, "The first tensor that differs is unknown: \"stage1_train\" has no --trace-steps.");
}

// If the same bits are required, even the sign of a zero counts. Stage 0 is traced once for each stage that
// disagrees.
TEST_F(FakeComparison, TracesForTheSameBits) {
  options_.experiment.repeats = 1;
  options_.experiment.ranks = {1};
  options_.experiment.reproducible = true;
  options_.choice.stages = {0, 1, 2};
  options_.choice.emulated = true;
  stage("stage2_train_emulated");
  for (const char* other : {"stage1_train", "stage2_train_emulated"}) {
    metrics(other, {4, 3, 2.5});
    trace(other, 3, 4, -0.0f);
  }
  trace("stage0_train", 3, 4, 0.0f);
  const Comparison comparison = run();
  ASSERT_EQ(comparison.divergences.size(), 2u);
  EXPECT_EQ(comparison.divergences[0].tensor, "the weight w");
  EXPECT_EQ(comparison.divergences[0].limit, 0);
  EXPECT_TRUE(
      comparison.divergences[1].text.starts_with("No tensor of Stage 2, emulated, reproducible differs"));
  EXPECT_TRUE(fs::exists(options_.output / "runs/stage0-batch-8-reproducible-traced"));
  EXPECT_TRUE(fs::exists(options_.output / "runs/stage0-batch-8-reproducible-traced-2"));
}

}  // namespace
}  // namespace stagegpt::compare::test
