// If one rank ends, all ranks end, with an exit code and a message that names the rank and the cause. Saved
// checkpoints remain valid.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <thread>

#include "common/base/error.h"
#include "common/checkpoint/run_directory.h"
#include "tests/support/mpi_program.h"
#include "tests/support/patterns.h"
#include "tests/support/trained_runs.h"

namespace stagegpt::test {
namespace {

// A run of a small model on the text t.txt, in the directory "run", which continues until it is ended. The
// test parameter is the program.
class Faults : public TrainedRuns, public testing::WithParamInterface<const char*> {
 protected:
  static std::string program() { return concat(STAGEGPT_BIN_DIR "/", GetParam()); }

  static Arguments small(const Arguments& more = {}) {
    return TrainedRuns::small(
        "run", with_flags(words("--steps 1000000 --batch-size 6 --checkpoint-every 10 --dropout 0"), more));
  }

  // Trains on `ranks` ranks. With once_saved(action), `action` is called when there is a checkpoint.
  ProgramResult train(int ranks, const Arguments& more, const RunOptions& options = {}) const {
    return run_mpi(ranks_of(ranks, GetParam()) + small(more), directory_.path(), options);
  }
  RunOptions once_saved(std::function<void(pid_t)> action) const {
    return {.signal_after = "step_00000020", .instead = std::move(action)};
  }
  void signal_rank(int rank, int signal) const {
    const std::vector<pid_t> ranks = ranks_in(directory_.path());
    ASSERT_GT(std::ssize(ranks), rank);
    kill(ranks[static_cast<std::size_t>(rank)], signal);
  }
  // Expects that all processes have ended, and that two ranks can resume the run.
  void expect_ended_and_resumable() const {
    EXPECT_TRUE(all_end(directory_.path()));
    const auto latest = std::filesystem::read_symlink(directory_.path() / "run/latest").filename();
    const std::int64_t done = step_in_name(latest).value_or(0);
    // There may be a newer checkpoint than `latest`, so this is some steps after it.
    const Arguments go_on = {"--resume", "run", "--stop-after", std::to_string(done + 20)};
    const ProgramResult result = run_mpi(ranks_of(2, GetParam()) + go_on, directory_.path());
    expect_said(expect_done(result), "resumed from");
  }

  // For mpirun: `ranks` ranks that train in the folder `where`.
  Arguments ranks_in_folder(int ranks, const Arguments& more = {}, const std::string& where = ".") const {
    return Arguments{"-np", std::to_string(ranks), "-wdir", directory_.path() / where, program()} +
           small(more);
  }
  // Expects that such ranks are refused together with others, in words that match `pattern`.
  void expect_refused(const Arguments& some, const Arguments& others, const std::string& pattern) const {
    const ProgramResult result =
        run_mpi(Arguments{"--oversubscribe"} + some + Arguments{":"} + others, directory_.path());
    EXPECT_EQ(result.exit_code, 2) << pattern;
    EXPECT_TRUE(has_match(result.errors, pattern)) << pattern << '\n' << result.errors;
  }
};
// These concern only what stage 3 takes from stage 1 unchanged, so they run at stage 1 alone.
using FaultsOfStage1 = Faults;

TEST_P(Faults, AKilledRankEndsAll) {
  for (const int rank : {0, 2}) {
    const ProgramResult result = train(3, rank == 0 ? Arguments{} : Arguments{"--run-dir", "other"},
                                       once_saved([&](pid_t) { signal_rank(rank, SIGKILL); }));
    EXPECT_NE(result.exit_code, 0);
    expect_said(result, "rank " + std::to_string(rank));
    EXPECT_TRUE(all_end(directory_.path()));
  }
  expect_ended_and_resumable();
}

TEST_P(Faults, ARankThatStallsIsNamed) {
  const ProgramResult result =
      train(3, {"--watchdog-seconds", "2"}, once_saved([&](pid_t) { signal_rank(1, SIGSTOP); }));
  EXPECT_NE(result.exit_code, 0);
  EXPECT_TRUE(has_match(result.errors,
                        "_train[a-z_]*: rank 1 was stopped in \"[a-z ]+\" for [1-9][0-9]* s "
                        "\\(--watchdog-seconds\\): ending all ranks\n"))
      << result.errors;
  expect_ended_and_resumable();
}

// After the last step, rank 0 writes a sample while the other waits.
TEST_P(FaultsOfStage1, ARankThatStallsInTheLastSampleIsNamed) {
  const ProgramResult result =
      train(2, words("--watchdog-seconds 2 --steps 2 --max-new-tokens 1000000"),
            {.signal_after = "trained in", .instead = [&](pid_t) {
               std::this_thread::sleep_for(std::chrono::milliseconds(500));  // the sample has begun
               signal_rank(0, SIGSTOP);
             }});
  EXPECT_NE(result.exit_code, 0);
  expect_said(result, "rank 0 was stopped in \"sample\" for ");
  EXPECT_TRUE(all_end(directory_.path()));
}

// The process exists, but the thread that computes does not continue.
TEST_P(FaultsOfStage1, ARankThatHangsIsNamed) {
  RunOptions options = once_saved([&](pid_t) { signal_rank(2, SIGRTMIN); });
  options.environment = {{"LD_PRELOAD", STAGEGPT_FAULTY_RANK}};
  const ProgramResult result = train(3, {"--watchdog-seconds", "2"}, options);
  EXPECT_NE(result.exit_code, 0);
  expect_said(result, "(--watchdog-seconds)");
  EXPECT_TRUE(all_end(directory_.path()));
}

// A long save is allowed, but a rank that hangs while it waits for the save must be detected.
TEST_P(FaultsOfStage1, ARankThatHangsWhileAnotherSavesEndsAll) {
  const ProgramResult result =
      train(3, {"--watchdog-seconds", "2", "--checkpoint-every", "1"},
            {.environment = {{"LD_PRELOAD", STAGEGPT_FAULTY_RANK}, {"STAGEGPT_SLOW_DISK", "200"}},
             .signal_after = "step_00000002",
             .instead = [&](pid_t) { signal_rank(2, SIGRTMIN); }});
  EXPECT_NE(result.exit_code, 0);
  expect_said(result, "(--watchdog-seconds)");
  EXPECT_TRUE(all_end(directory_.path()));
}

// Rank 1 is stopped while it waits for rank 0, which continues.
TEST_P(FaultsOfStage1, ARankThatIsStoppedWhileItWaitsIsNamed) {
  const auto stop_while_it_waits = [&](pid_t) {
    constexpr int kMicroseconds = 300'000;
    signal_rank(0, SIGSTOP);
    usleep(kMicroseconds);
    signal_rank(1, SIGSTOP);
    signal_rank(0, SIGCONT);
  };
  const ProgramResult result = train(2, {"--watchdog-seconds", "2"}, once_saved(stop_while_it_waits));
  expect_said(result, "rank 1 was stopped in \"");
  EXPECT_TRUE(all_end(directory_.path()));
}

TEST_P(FaultsOfStage1, NoRankSurvivesAKilledLauncher) {
  train(3, {}, once_saved([&](pid_t mpirun) { kill(mpirun, SIGKILL); }));
  expect_ended_and_resumable();
}

TEST_P(FaultsOfStage1, ARankThatExitsEarlyEndsAll) {
  const ProgramResult result =
      train(2, {}, {.environment = {{"LD_PRELOAD", STAGEGPT_FAULTY_RANK}, {"STAGEGPT_EARLY_EXIT", "1"}}});
  EXPECT_NE(result.exit_code, 0);
  EXPECT_TRUE(all_end(directory_.path()));
}

TEST_P(FaultsOfStage1, ASignalToTheLauncherSavesAndStops) {
  const ProgramResult result = train(3, {}, {.signal_after = "step_00000020", .signals = {SIGUSR1}});
  expect_failure(result, 75, "stopped by a signal after step");
  expect_ended_and_resumable();
}

TEST_P(Faults, ASignalToOneRankSavesAndStopsAll) {
  const ProgramResult result = train(3, {}, once_saved([&](pid_t) { signal_rank(2, SIGUSR1); }));
  EXPECT_EQ(result.exit_code, 75) << result.errors;
  expect_ended_and_resumable();
}

TEST_P(FaultsOfStage1, TerminatingTheLauncherEndsAll) {
  const ProgramResult result = train(2, {}, {.signal_after = "step_00000020", .signals = {SIGTERM}});
  EXPECT_NE(result.exit_code, 0);
  expect_ended_and_resumable();
}

// Rank 1 has a limit on the host's memory and on the emulated device's memory. MPI_Comm_free waits here for
// all ranks, so it must not be called after an error.
TEST_P(Faults, ARankWithoutMemoryEndsAll) {
  Arguments limited = {"sh", "-c", "ulimit -v 4000000; STAGEGPT_EMULATOR_MEMORY=50000000 exec \"$0\" \"$@\"",
                       program()};
  const Arguments large = small(
      {"--tokenizer", "bpe", "--batch-size", "150000", "--data", STAGEGPT_SOURCE_DIR "/data/dummy.txt"});
  const auto with_limit = [&](const Arguments& more) {
    return run_mpi(Arguments{"--oversubscribe", "-np", "1", program()} + large + more +
                       Arguments{":", "-np", "1"} + limited + large + more,
                   directory_.path(),
                   {.environment = {{"LD_PRELOAD", STAGEGPT_FAULTY_RANK}, {"STAGEGPT_FREE_WAITS", "1"}}});
  };
  const ProgramResult refused = with_limit({});
  expect_failure(refused, 2, "rank 1: --batch-size: training with 150000 sequences");
  const ProgramResult result = with_limit({"--ignore-memory"});
  expect_failure(result, 1, "rank 1: out of memory");
  EXPECT_TRUE(all_end(directory_.path()));
}

TEST_P(Faults, WhatIsNotFiniteEndsAllAndIsToldOnce) {
  const ProgramResult result =
      train(3, words("--learning-rate 1e30 --lr-schedule constant --warmup-steps 0 --grad-clip 0"));
  expect_told_once(result, 1, "is not finite (loss");
}

// The path is the same, but rank 1 has another working directory.
TEST_P(FaultsOfStage1, FilesThatDifferAreNamed) {
  std::filesystem::create_directory(directory_.path() / "other");
  expect_refused(ranks_in_folder(1), ranks_in_folder(1, {}, "other"), "rank 1: --data");  // it has no file
  const auto expect_named = [&](const std::string& flag, const Arguments& more) {
    expect_refused(ranks_in_folder(1, more), ranks_in_folder(1, more, "other"), flag + ": .* on rank 1");
  };
  directory_.write("other/t.txt", std::string(4000, 'a') + "\n");
  expect_named("--data", {"--tokenizer", "bpe"});
  std::filesystem::copy_file(directory_.path() / "t.txt", directory_.path() / "other/t.txt",
                             std::filesystem::copy_options::overwrite_existing);
  directory_.write("q.jsonl", R"({"context": "the", "endings": ["cat", "mat"], "label": 0})");
  directory_.write("other/q.jsonl", R"({"context": "the", "endings": ["cat", "mat"], "label": 1})");
  expect_named("--eval-task", {"--eval-task", "q.jsonl"});
}

TEST_P(FaultsOfStage1, SettingsThatDifferAreNamed) {
  expect_refused(ranks_in_folder(2, {"--seed", "1"}), ranks_in_folder(1, {"--seed", "2"}),
                 "--seed: 2 on rank 2, 1 on rank 0");
  expect_refused(ranks_in_folder(1), ranks_in_folder(1, {"--trace-steps", "2"}),
                 "--trace-steps: yes 2 on rank 1, no on rank 0");
}

// Flags that are not settings, but must be the same on all ranks.
TEST_P(Faults, CallsThatDifferAreNamed) {
  for (const std::string flag : {"--help", "--version", "--dry-run", "--print-config", "--json"}) {
    const bool exits = flag == "--help" || flag == "--version";
    expect_refused(ranks_in_folder(1), ranks_in_folder(1, {flag}),
                   (exits ? "--help or --version" : flag) + ": yes on rank 1, no on rank 0");
  }
}

// Only rank 0 writes the trace.
TEST_P(FaultsOfStage1, ATraceThatCannotBeWrittenEndsAllAndIsToldOnce) {
  EXPECT_EQ(train(2, {"--stop-after", "10"}).exit_code, 0);
  directory_.write("run/traces", "no directory");
  const ProgramResult result = run_mpi(
      ranks_of(2, GetParam()) + words("--resume run --stop-after 20 --trace-steps 1"), directory_.path());
  expect_told_once(result, 1, "cannot create \"run/traces");
  EXPECT_TRUE(all_end(directory_.path()));
}

TEST_P(FaultsOfStage1, AMistakeOfTheUsersIsToldOnce) {
  expect_told_once(train(3, {"--grad-clip", "many"}), 2, "--grad-clip: ");
}

std::string name_of(const testing::TestParamInfo<const char*>& test) { return test.param; }
INSTANTIATE_TEST_SUITE_P(Stage1, Faults, testing::Values("stage1_train"), name_of);
INSTANTIATE_TEST_SUITE_P(Stage1, FaultsOfStage1, testing::Values("stage1_train"), name_of);
#ifdef STAGEGPT_THOROUGH  // CI
INSTANTIATE_TEST_SUITE_P(Stage3, Faults, testing::Values("stage3_train_emulated"), name_of);
#endif

}  // namespace
}  // namespace stagegpt::test
