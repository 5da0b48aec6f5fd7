// The phases of a run: those that a watchdog gets to know, and those for which the time of a step counts.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "common/backend/op_observer.h"
#include "common/comm/self_communicator.h"
#include "common/generation/generation.h"
#include "common/train/training_run.h"
#include "stage0_serial/cpu_backend.h"
#include "tests/data/make_tokenizers.h"
#include "tests/support/golden.h"
#include "tests/support/program.h"
#include "tests/support/small_training.h"

namespace stagegpt::test {
namespace {

namespace fs = std::filesystem;

// A group of one process that writes down the phases that are entered, the first beat in each, and the beats
// at which files in `directory` have come or gone since the beat before. It may claim to be one of two ranks.
class PhaseGroup final : public RankGroup {
 public:
  explicit PhaseGroup(int size = 1, fs::path directory = {})
      : size_(size), directory_(std::move(directory)) {}
  int rank() const override { return 0; }
  int size() const override { return size_; }
  void barrier() override {}
  void broadcast(std::span<std::byte>, int) override {}
  void all_gather(std::span<const std::byte> own, std::span<std::byte> all) override {
    for (auto out = all.begin(); out != all.end(); out += std::ssize(own)) std::ranges::copy(own, out);
  }
  void enter(const char* phase) override {
    event(concat("enter \"", phase, "\""));
    has_beaten_ = false;
  }
  void beat() override {
    const std::set<fs::path> before = std::exchange(files_, files());
    const std::string changes =
        names_of_those_not_in(files_, before, " -") + names_of_those_not_in(before, files_, " +");
    if (!std::exchange(has_beaten_, true) || !changes.empty()) event("  beats" + changes);
  }
  void event(const std::string& what) { log_ += what + '\n'; }
  const std::string& log() const { return log_; }

 private:
  std::set<fs::path> files() const {
    std::set<fs::path> found;
    std::error_code error;
    for (const auto& entry : fs::recursive_directory_iterator(directory_, error))
      found.insert(entry.path().lexically_relative(directory_));
    return found;
  }
  // Without what is in a directory that is not there either.
  static std::string names_of_those_not_in(const std::set<fs::path>& there, const std::set<fs::path>& all,
                                           const char* sign) {
    std::string names;
    for (const fs::path& path : all) {
      const bool with_its_directory = path.has_parent_path() && !there.contains(path.parent_path());
      if (!there.contains(path) && !with_its_directory) names += sign + path.string();
    }
    return names;
  }

  int size_;
  fs::path directory_;
  std::set<fs::path> files_;
  bool has_beaten_ = false;
  std::string log_;
};

// Two steps, of which the first is traced; each is followed by a validation, a sample and a checkpoint.
TEST(RunPhases, AreToldToTheWatchdog) {
  const ScratchDirectory scratch;
  PhaseGroup group(1, scratch.path() / "run");
  SelfCommunicator communicator(group);
  NoGradientSync sync;
  const auto backend = make_cpu_backend(1);
  Gpt2 model(*backend, SmallTraining::model_config(0));
  model.parameters().initialize(1);
  Corpus corpus;
  corpus.tokenizer = char_tokenizer("abc");
  corpus.train = TokenSequence(std::vector<std::int32_t>(500, 1));
  corpus.validation = TokenSequence(std::vector<std::int32_t>(100, 1));
  TrainingRunConfig config;
  config.trainer = small_config(2, 2);
  config.trainer.schedule.steps = config.last_step = 2;
  config.eval_every = config.sample_every = config.checkpoint_every = 1;
  config.trace_steps = 1;
  config.peak = Peak{1e9, "made up"};
  config.sample = [&] {
    group.event("  a sample is drawn");
    return "text";
  };
  TrainingRun run(*backend, communicator, sync, model, corpus, config);
  run.prepare();
  RunDirectory directory = RunDirectory::create(scratch.path() / "run");
  testing::internal::CaptureStderr();
  run.run(&directory);
  testing::internal::GetCapturedStderr();
  group.event("the end");
  expect_golden(group.log(), "run_phases.txt");
}

// Delays an op.
class SlowOp final : public OpObserver {
 public:
  SlowOp(Backend& backend, std::string op, std::chrono::milliseconds pause)
      : OpObserver(backend), op_(std::move(op)), pause_(pause) {}
  void around(const OpCall& op, const std::function<void()>& kernel) override {
    kernel();
    if (op.name == op_) std::this_thread::sleep_for(pause_);
  }

 private:
  std::string op_;
  std::chrono::milliseconds pause_;
};

// A synchronisation of which one call takes long.
class SlowSync final : public NoGradientSync {
 public:
  SlowSync(std::string call, std::chrono::milliseconds pause)
      : NoGradientSync({.communicates = true}), call_(std::move(call)), pause_(pause) {}
  void ready(Parameters&, int parameter) override {
    if (parameter == 0) called("ready");
  }
  void finish(Parameters&) override { called("finish"); }
  void sum_squared_norms(const Tensor&, const Tensor&) override { called("sum_squared_norms"); }
  void share_weights(Parameters&) override { called("share_weights"); }

 private:
  void called(const char* call) const {
    if (call == call_) std::this_thread::sleep_for(pause_);
  }
  std::string call_;
  std::chrono::milliseconds pause_;
};

// The time of the slow call must be in its phase. Other phases are not looked at: they take long on a busy
// machine.
TEST(RunPhases, TimeOfAStepCountsForThePhaseOfTheCall) {
  constexpr std::chrono::milliseconds kPause{20};
  const std::pair<const char*, PhaseClock::Phase> calls[] = {
      {"copy_from_host", &PhaseSeconds::data},
      {"embedding_forward", &PhaseSeconds::forward},
      {"attention_forward", &PhaseSeconds::forward},
      {"cross_entropy_forward_backward", &PhaseSeconds::forward},
      {"attention_backward", &PhaseSeconds::backward},
      {"embedding_backward", &PhaseSeconds::backward},
      {"ready", &PhaseSeconds::communication},
      {"finish", &PhaseSeconds::communication},
      {"squared_norm", &PhaseSeconds::optimizer},
      {"sum_squared_norms", &PhaseSeconds::communication},
      {"adamw", &PhaseSeconds::optimizer},
      {"share_weights", &PhaseSeconds::communication},
  };
  for (const auto& [call, phase] : calls) {
    PhaseGroup two(2);
    SelfCommunicator communicator(two);
    SmallTraining small(make_cpu_backend(1), small_config(2, 1), random_tokens(500));
    SlowSync sync(call, kPause);
    Trainer trainer(*small.backend, communicator, sync, small.model, small.data, small_config(2, 1));
    const SlowOp observer(*small.backend, call, kPause);
    const PhaseSeconds seconds = trainer.step().seconds;
    EXPECT_GE(seconds.*phase, std::chrono::duration<double>(kPause).count()) << call;
  }
}

}  // namespace
}  // namespace stagegpt::test
