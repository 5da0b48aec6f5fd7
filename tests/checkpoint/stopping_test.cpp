// Signals that stop a run: after a step, with a checkpoint; before the first step, without writing anything.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>

#include "common/base/json.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/hugging_face_model.h"
#include "common/checkpoint/manifest.h"
#include "common/system/stop_signals.h"
#include "stage0_serial/naive_backend.h"
#include "tests/checkpoint/small_run.h"

namespace stagegpt::test {
namespace {

class Signals : public SmallRun {
 protected:
  static Arguments flags(const std::string& run) {
    return with(model_flags(), {"--dropout", "0.1", "--steps", "30", "--eval-every", "7",
                                "--checkpoint-every", "11", "--run-dir", run});
  }
  ProgramResult signalled(const std::string& run, const std::vector<int>& signals) const {
    return train(with_flags(flags(run), {"--steps", "1000000"}),
                 {.signal_after = "step 1/", .signals = signals});
  }
  void expect_stopped(const std::string& run, const ProgramResult& result) const {
    EXPECT_EQ(result.exit_code, 75) << result.errors;
    EXPECT_EQ(result.output, "");
    expect_said(result, "stopped by a signal after step");
    const auto state = nlohmann::json::parse(read_bytes(in(run) / "latest/trainer_state.json"));
    EXPECT_EQ(state["step"].get<std::size_t>(), metrics(run).size());
  }
};

TEST_F(Signals, StopARunAfterACheckpoint) {
  for (const int signal : {SIGUSR1, SIGUSR2, SIGTERM, SIGHUP, SIGXCPU, SIGPWR, SIGINT})
    expect_stopped(concat("run-", signal), signalled(concat("run-", signal), {signal}));
}

// As on a full disk.
TEST_F(Signals, ForAFileThatMayNotGrowAreAnErrorOfWriting) {
  std::string command =
      concat("cd ", directory.path(), " && ulimit -f 8 && exec ", STAGEGPT_BIN_DIR, "/stage0_train");
  for (const std::string& argument : with(model_flags(), {"--steps", "1", "--run-dir", "run"}))
    command += " " + argument;
  EXPECT_EQ(WEXITSTATUS(std::system((command + " 2>errors").c_str())), 1);
  const std::string errors = read_bytes(in("errors"));
  EXPECT_NE(errors.find("model.safetensors\": File too large"), std::string::npos) << errors;
}

TEST_F(Signals, ThatComeTwiceDoNoHarm) {
  // The signals continue until the process has ended: they also come while it saves and while it exits.
  std::vector<int> signals(500, SIGUSR1);
  signals[0] = SIGTERM;
  expect_stopped("usr1", signalled("usr1", signals));
  // A second SIGINT ends the process at once. What was saved before is valid.
  EXPECT_NE(signalled("int", {SIGINT, SIGINT}).exit_code, 0);
}

TEST(StopSignals, AreNotedForGoodOnceOneHasCome) {
  const auto stopped = [] {
    {
      const StopSignals signals({SIGUSR1, SIGTERM});
      raise(SIGUSR1);
    }
    raise(SIGTERM);
    raise(SIGUSR1);
    std::_Exit(StopSignals::requested() ? 75 : 1);
  };
  EXPECT_EXIT(stopped(), testing::ExitedWithCode(75), "");
}

// nohup ignores SIGHUP, and a shell ignores SIGINT for a background job.
TEST(StopSignals, ThatAreIgnoredStayIgnored) {
  const auto ignored = [] {
    std::signal(SIGHUP, SIG_IGN);
    const StopSignals signals({SIGHUP});
    raise(SIGHUP);
    std::_Exit(StopSignals::requested() ? 75 : 0);
  };
  EXPECT_EXIT(ignored(), testing::ExitedWithCode(0), "");
}

TEST(StopSignals, ThatDidNotComeAreAsBefore) {
  const auto not_stopped = [] {
    { const StopSignals signals({SIGUSR1}); }
    raise(SIGUSR1);
  };
  EXPECT_EXIT(not_stopped(), testing::KilledBySignal(SIGUSR1), "");
}

// A signal comes while a text or a checkpoint is read. A sparse file of 32 GiB makes the reading slow.
class SignalsBeforeTheFirstStep : public SmallRun {
 protected:
  static constexpr std::uintmax_t kLong = std::uintmax_t{1} << 35;

  // Trains, and sends SIGTERM as soon as the process handles it.
  ProgramResult stopped_while_it_reads(const Arguments& arguments) const {
    const auto signal_when_ready = [](pid_t child) {
      while (!has_ended(child) && !catches(child, SIGTERM)) usleep(1000);
      kill(child, SIGTERM);
    };
    return train(arguments, {.instead = signal_when_ready});
  }
  void expect_stopped(const ProgramResult& result) const {
    EXPECT_EQ(result.exit_code, kExitStopped) << result.errors;
    EXPECT_EQ(result.output, "");
    const std::string says = "stage0_train: stopped by a signal before the first step; nothing was saved\n";
    EXPECT_TRUE(result.errors.ends_with(says)) << result.errors;
  }

 private:
  static bool has_ended(pid_t child) {
    siginfo_t info{};
    waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT);
    return info.si_pid == child;
  }
  // Whether a process handles the signal: reads the line "SigCgt:\t0000000000004a00" of /proc/PID/status.
  static bool catches(pid_t child, int signal) {
    const std::string status = read_bytes("/proc/" + std::to_string(child) + "/status"), field = "SigCgt:\t";
    const std::size_t at = status.find(field);
    if (at == std::string::npos) return false;
    return (std::stoull(status.substr(at + field.size(), 16), nullptr, 16) >> (signal - 1) & 1) != 0;
  }
};

TEST_F(SignalsBeforeTheFirstStep, LeaveNoRun) {
  std::filesystem::resize_file(in("text.txt"), kLong);
  expect_stopped(stopped_while_it_reads(with(model_flags(), {"--run-dir", "run", "--any-bytes"})));
  EXPECT_FALSE(std::filesystem::exists(in("run")));
}

TEST_F(SignalsBeforeTheFirstStep, AreKeptWhileTheProgramStartsItselfAgain) {
  if (std::getenv("GOMP_SPINCOUNT") != nullptr) GTEST_SKIP() << "with GOMP_SPINCOUNT it does not start again";
  expect_stopped(train(with(model_flags(), {"--run-dir", "run"}),
                       {.environment = {{"LD_PRELOAD", STAGEGPT_EARLY_SIGNAL_LIBRARY}}}));
}

// The weights of the checkpoint are damaged: a program that read all of them would refuse the checkpoint.
TEST_F(SignalsBeforeTheFirstStep, EndTheVerificationOfACheckpoint) {
  expect_success(with(model_flags(), {"--run-dir", "run", "--steps", "20", "--stop-after", "2"}));
  const std::filesystem::path checkpoint = in("run/checkpoints/step_00000002");
  std::vector<FileEntry> files = parse_manifest(read_bytes(checkpoint / "manifest.json"));
  std::ranges::find(files, "model.safetensors", &FileEntry::file)->bytes = kLong;
  std::filesystem::resize_file(checkpoint / "model.safetensors", kLong);
  write_manifest(checkpoint, files);
  expect_stopped(stopped_while_it_reads({"--resume", "run"}));
  expect_stopped(stopped_while_it_reads({"--resume", checkpoint}));
  expect_stopped(stopped_while_it_reads(
      {"--model", "run", "--data", "text.txt", "--run-dir", "other", "--threads", "1"}));
  EXPECT_FALSE(std::filesystem::exists(in("other")));
  EXPECT_TRUE(std::filesystem::exists(checkpoint));
}

TEST_F(SignalsBeforeTheFirstStep, AreLookedForAfterEachTensor) {
  expect_success(with(model_flags(), {"--run-dir", "run", "--steps", "1"}));
  const ModelFile file = read_hugging_face(in("run/latest"), "--model");
  const auto backend = make_naive_backend();
  const Gpt2 model(*backend, file.config);
  const Parameters& parameters = model.parameters();
  std::size_t beats = 0;
  const Heartbeat beat = [&] { ++beats; };
  load_weights(*backend, model.parameters(), with_heartbeat(file.values, beat));
  EXPECT_EQ(beats, parameters.table().size());
  const Heartbeat stop = [] { throw Stopped(); };
  EXPECT_THROW(load_weights(*backend, model.parameters(), with_heartbeat(file.values, stop)), Stopped);
  const MomentValues moments = read_moments(in("run/latest"), parameters.table());
  EXPECT_THROW(load_weights(*backend, parameters, with_heartbeat(moments.m, stop)), Stopped);
}

TEST_F(SignalsBeforeTheFirstStep, LeaveARunThatWasResumedAsItWas) {
  const std::uintmax_t size = std::filesystem::file_size(in("text.txt")) + 1;
  std::filesystem::resize_file(in("text.txt"), size);  // so that the vocabulary has the zero
  expect_success(
      with(model_flags(), {"--run-dir", "run", "--steps", "20", "--stop-after", "2", "--any-bytes"}));
  const auto before = files_of("run");
  std::filesystem::resize_file(in("text.txt"), kLong);
  expect_stopped(stopped_while_it_reads({"--resume", "run", "--steps", "30", "--any-bytes"}));
  EXPECT_EQ(files_of("run"), before);
  std::filesystem::resize_file(in("text.txt"), size);
  expect_success({"--resume", "run"});
  EXPECT_EQ(metrics("run").size(), 20u);
}

TEST_F(Signals, LoseNothing) {
  expect_success(flags("whole"));
  const ProgramResult result = train(flags("run"), {.signal_after = "step 1/", .signals = {SIGTERM}});
  if (result.exit_code == 75) expect_success({"--resume", "run"});  // or it has ended before the signal
  expect_same_end("run", "whole");
}

}  // namespace
}  // namespace stagegpt::test
