// A whole run in this process, and the beats that it sends to a watchdog.
#include "common/train/training_run.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "common/comm/self_communicator.h"
#include "common/train/run_validation.h"
#include "stage0_serial/cpu_backend.h"
#include "tests/data/make_tokenizers.h"
#include "tests/support/program.h"
#include "tests/support/small_training.h"

namespace stagegpt::test {
namespace {

namespace fs = std::filesystem;

// A group of one process that calls `on_beat` at each beat.
class Watched final : public RankGroup {
 public:
  explicit Watched(std::function<void()> on_beat) : on_beat_(std::move(on_beat)) {}
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void barrier() override {}
  void broadcast(std::span<std::byte>, int) override {}
  void all_gather(std::span<const std::byte> own, std::span<std::byte> all) override {
    std::ranges::copy(own, all.begin());
  }
  void enter(const char*) override {}
  void beat() override { on_beat_(); }

 private:
  std::function<void()> on_beat_;
};

// Writing the last file and the directories to disk may take long. The run must send beats meanwhile.
TEST(TrainingRun, BeatsWhileACheckpointIsCommitted) {
  const ScratchDirectory scratch;
  const fs::path run_path = scratch.path() / "run";
  bool committing = false;
  Watched group([&] { committing |= fs::exists(run_path / "checkpoints/step_00000001.tmp/manifest.json"); });
  SelfCommunicator communicator(group);
  NoGradientSync sync;
  const auto backend = make_cpu_backend(1);
  Gpt2 model(*backend, SmallTraining::model_config(0));
  model.parameters().initialize(1);
  Corpus corpus;
  corpus.tokenizer = char_tokenizer("abc");
  corpus.train = TokenSequence(random_tokens(500));
  TrainingRunConfig config;
  config.trainer = small_config(2, 1);
  config.peak = Peak{1e9, "made up"};
  TrainingRun run(*backend, communicator, sync, model, corpus, config);
  run.prepare();
  RunDirectory directory = RunDirectory::create(run_path);
  testing::internal::CaptureStderr();
  run.run(&directory);
  testing::internal::GetCapturedStderr();
  EXPECT_TRUE(fs::exists(run_path / "checkpoints/step_00000001"));
  EXPECT_TRUE(committing);
}

// By it the time that is left is estimated.
TEST(RunValidation, CountsTheWorkOfItsWindowsAndOfTheTask) {
  SelfCommunicator communicator;
  const auto backend = make_cpu_backend(1);
  const Gpt2 model(*backend, SmallTraining::model_config(0));  // windows of 20 tokens
  Corpus corpus;
  corpus.tokenizer = char_tokenizer("abc");
  corpus.validation = TokenSequence(random_tokens(101));
  TrainingRunConfig config;
  config.trainer = small_config(2, 1);
  const auto work = [&] { return RunValidation(*backend, communicator, model, corpus, config).work(); };
  EXPECT_EQ(work(), 5);
  const ChoiceTask task{.questions = {}, .endings = {{random_tokens(25), 2}, {random_tokens(16), 2}}};
  config.task = &task;
  EXPECT_EQ(work(), 5 + 2);
}

}  // namespace
}  // namespace stagegpt::test
