// --checkpoint-async: checkpoints that are written while the run goes on.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <nlohmann/json.hpp>

#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/hugging_face_model.h"
#include "common/checkpoint/run_directory.h"
#include "tests/support/logged_calls.h"
#include "tests/support/mpi_program.h"
#include "tests/support/sanitized.h"
#include "tests/support/trained_runs.h"

namespace stagegpt::test {
namespace {

namespace fs = std::filesystem;

const Arguments kAsync = {"--checkpoint-async"};

class BackgroundSaves : public TrainedRuns {
 protected:
  fs::path in(const std::string& name) const { return directory_.path() / name; }
  static Arguments small(const std::string& run, const Arguments& more = {}) {
    return TrainedRuns::small(
        run, with_flags({"--steps", "4", "--eval-every", "4", "--max-new-tokens", "0", "--batch-size", "6"},
                        more));
  }
  ProgramResult ranks(int n, const Arguments& arguments, const RunOptions& options = {}) const {
    return run_mpi(Arguments{"--quiet"} + ranks_of(n, "stage1_train") + arguments, directory_.path(),
                   options);
  }
  std::int64_t lines_of_metrics(const std::string& run) const {
    const std::string text = read_bytes(in(run) / "metrics.jsonl");
    return std::ranges::count(text, '\n');
  }
  // The step of the newest checkpoint that is whole; 0 if there is none.
  std::int64_t newest_step(const std::string& run) const {
    if (checkpoints_of(in(run)).empty()) return 0;
    const fs::path checkpoint = newest_checkpoint(in(run));
    const HuggingFaceModel model(checkpoint, "checkpoint");
    return read_trainer_state(checkpoint).step;
  }
  std::vector<std::int64_t> steps_of(const std::string& run) const {
    std::vector<std::int64_t> steps;
    for (const auto& [step, path] : checkpoints_of(in(run))) steps.push_back(step);
    return steps;
  }
};

TEST_F(BackgroundSaves, AreTheFilesOfOthers) {
  const Arguments often = {"--steps", "6", "--checkpoint-every", "2", "--keep-last", "3"};
  stage0("train", small("one", often));
  stage0("train", small("one_async", often) + kAsync);
  const Arguments writers = with_flags(often, {"--checkpoint-writers", "2"});
  expect_done(ranks(3, small("three", writers)));
  expect_done(ranks(3, small("three_async", writers) + kAsync));
  for (const std::string run : {"one", "three"}) {
    EXPECT_EQ(steps_of(run + "_async"), (std::vector<std::int64_t>{2, 4, 6}));
    for (const int step : {2, 4, 6})
      EXPECT_EQ(hash_after(step, run + "_async"), hash_after(step, run)) << run << step;
    EXPECT_EQ(fs::read_symlink(in(run + "_async/latest")), fs::read_symlink(in(run + "/latest")));
  }
}

// Each sync in a checkpoint takes 0.2 s, so the checkpoint of step 30 takes over 1.6 s; a step takes
// milliseconds. The save after step 60 waits for it.
TEST_F(BackgroundSaves, AreWrittenBehindTheNextSteps) {
  if (kSanitized) GTEST_SKIP() << "nothing can be loaded before the sanitizer";
  std::int64_t lines = 0;
  const RunOptions slow_disk = {
      .environment = {{"LD_PRELOAD", STAGEGPT_FAULTY_RANK}, {"STAGEGPT_SLOW_DISK", "200"}},
      .signal_after = "checkpoint: run/checkpoints/step_00000030",
      .instead = [&](pid_t) { lines = lines_of_metrics("run"); }};
  const Arguments steps = {"--steps", "60", "--checkpoint-every", "30", "--eval-every", "60"};
  expect_done(ranks(2, small("run", steps) + kAsync, slow_disk));
  EXPECT_GE(lines, 50);
  EXPECT_EQ(newest_step("run"), 60);
}

// A disk that is slower than --watchdog-seconds allows only where none of its files makes progress.
TEST_F(BackgroundSaves, MayTakeLongerThanTheWatchdogWaits) {
  if (kSanitized) GTEST_SKIP() << "nothing can be loaded before the sanitizer";
  const Arguments run = small("run", {"--steps", "1", "--watchdog-seconds", "1"});
  expect_done(ranks(2, run + kAsync,
                    {.environment = {{"LD_PRELOAD", STAGEGPT_FAULTY_RANK}, {"STAGEGPT_SLOW_DISK", "300"}}}));
  EXPECT_EQ(newest_step("run"), 1);
}

// The run ends when a step is not finite, and saves the step before it, as without --checkpoint-async.
TEST_F(BackgroundSaves, OfARunThatDivergesAreThoseOfAnyOther) {
  const Arguments diverging = {"--learning-rate",    "1e30", "--lr-schedule", "constant",
                               "--warmup-steps",     "0",    "--grad-clip",   "0",
                               "--checkpoint-every", "1"};
  EXPECT_EQ(ranks(2, small("run", diverging)).exit_code, 1);
  EXPECT_EQ(ranks(2, small("async", diverging) + kAsync).exit_code, 1);
  EXPECT_FALSE(steps_of("run").empty());
  EXPECT_EQ(steps_of("async"), steps_of("run"));
  EXPECT_EQ(newest_step("async"), newest_step("run"));
}

TEST_F(BackgroundSaves, AreCompletedBeforeASignalEndsTheRun) {
  const ProgramResult result =
      ranks(2, small("run", {"--steps", "1000000", "--checkpoint-every", "10"}) + kAsync,
            {.signal_after = "step_00000020", .signals = {SIGUSR1}});
  EXPECT_EQ(result.exit_code, 75) << result.errors;
  EXPECT_EQ(newest_step("run"), lines_of_metrics("run"));
  EXPECT_FALSE(fs::exists(in("run/checkpoints") / (checkpoint_name(newest_step("run")) + ".tmp")));
}

// --dry-run plans the copies: four bytes for each weight and two moments, divided among the writers.
TEST_F(BackgroundSaves, AreInTheMemoryPlan) {
  const auto plan = [&](const Arguments& more) {
    const Arguments asked = small("run", {"--dry-run", "--json"}) + more;
    return nlohmann::json::parse(expect_done(ranks(2, asked)).output);
  };
  const auto without = plan({}), with = plan(kAsync),
             divided = plan(kAsync + Arguments{"--checkpoint-writers", "2"});
  const double parameters = without["parameters"], copy = with["checkpoint_copy_bytes"];
  EXPECT_EQ(copy, 12 * parameters);
  EXPECT_EQ(without["checkpoint_copy_bytes"], 0);
  EXPECT_EQ(with["needed_bytes"].get<double>() - without["needed_bytes"].get<double>(), copy);
  EXPECT_GE(divided["checkpoint_copy_bytes"], copy / 2);
  EXPECT_LE(divided["checkpoint_copy_bytes"], copy * 0.6);
}

// The library of support/fault_injection.cpp, in a run of three steps with a checkpoint each.
class FaultyBackgroundSaves : public BackgroundSaves {
 protected:
  void SetUp() override {
    BackgroundSaves::SetUp();
    fs::create_directory(in("root"));
    fs::create_directory(in("kept"));
  }
  ProgramResult train(const std::string& kind, int at) const {
    fs::remove_all(in("root/run"));
    fs::remove(in("log"));
    for (const auto& kept : fs::directory_iterator(in("kept"))) fs::remove_all(kept);
    return run_program(
        "stage0_train",
        small("root/run", {"--steps", "3", "--checkpoint-every", "1", "--val-fraction", "0"}) + kAsync,
        directory_.path(),
        {.environment = {{"LD_PRELOAD", STAGEGPT_FAULT_LIBRARY},
                         {"ASAN_OPTIONS", "verify_asan_link_order=0:detect_leaks=0"},
                         {"FAULT_ROOT", in("root")},
                         {"FAULT_KEEP", in("kept")},
                         {"FAULT_LOG", in("log")},
                         {"FAULT_KIND", kind},
                         {"FAULT_AT", std::to_string(at)}}});
  }
};

// Threads write beside the steps, so the order of the calls differs from run to run: what must survive
// follows from the calls of the run that was interrupted.
TEST_F(FaultyBackgroundSaves, InterruptedAtAnyCallLeaveTheNewestCheckpointWhole) {
  constexpr int kEvery = kSanitized ? 29 : 5;
  const char* kinds[] = {"kill", "power_loss", "kill_halfway", "data_loss"};
  ASSERT_EQ(train("eintr", 1'000'000).exit_code, 0);
  const std::vector<std::string> all = logged_calls(in("log"));
  ASSERT_EQ(durable_steps(all).back(), 3);
  for (int n = 1, i = 0; n <= std::ssize(all) - 5; n += kEvery, ++i) {
    ASSERT_EQ(train(kinds[i % 4], n).exit_code, -1) << n;
    const std::vector<std::string> calls = logged_calls(in("log"));
    EXPECT_GE(newest_step("root/run"), durable_steps(calls).back()) << kinds[i % 4] << ' ' << calls.back();
  }
}

TEST_F(FaultyBackgroundSaves, OnAFullDiskAreToldAndEndAsOthers) {
  ASSERT_EQ(train("eintr", 1'000'000).exit_code, 0);
  const std::vector<std::string> all = logged_calls(in("log"));
  const auto call = std::ranges::find_if(all, [](const std::string& line) {
    return line.find(" write ") != line.npos && line.find("step_00000002.tmp/optimizer") != line.npos;
  });
  ASSERT_NE(call, all.end());
  const ProgramResult result = train("enospc", static_cast<int>(call - all.begin()) + 1);
  EXPECT_EQ(result.exit_code, 1) << result.errors;
  EXPECT_NE(result.errors.find("warning: saving step 2: cannot write "), std::string::npos) << result.errors;
  EXPECT_NE(result.errors.find("warning: saving step 3: cannot "), std::string::npos) << result.errors;
  EXPECT_NE(result.errors.find("\nstage0_train: cannot "), std::string::npos) << result.errors;
  EXPECT_EQ(newest_step("root/run"), 1);
  EXPECT_EQ(steps_of("root/run"), std::vector<std::int64_t>{1});
  for (const auto& entry : fs::directory_iterator(in("root/run/checkpoints")))
    EXPECT_NE(entry.path().extension(), ".tmp") << entry.path();
}

TEST_F(FaultyBackgroundSaves, ThatFailOnceAreToldAndTheRunGoesOn) {
  ASSERT_EQ(train("eintr", 1'000'000).exit_code, 0);
  const std::vector<std::string> all = logged_calls(in("log"));
  const auto call = std::ranges::find_if(all, [](const std::string& line) {
    return line.find(" fsync ") != line.npos && line.find("step_00000001.tmp/model") != line.npos;
  });
  ASSERT_NE(call, all.end());
  const int at = static_cast<int>(call - all.begin()) + 1;
  const ProgramResult result = train("eio", at);
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_EQ(newest_step("root/run"), 3);
  // The call that was struck may be another one, of the steps beside.
  const std::string struck = logged_calls(in("log"))[static_cast<std::size_t>(at) - 1];
  const bool in_checkpoint =
      struck.find("step_00000001.tmp/") != struck.npos && struck.find(" close ") == struck.npos;
  EXPECT_EQ(result.errors.find("warning: saving step 1: cannot write ") != std::string::npos, in_checkpoint)
      << struck << result.errors;
}

}  // namespace
}  // namespace stagegpt::test
