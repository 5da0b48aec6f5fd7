// A whole run on several ranks: rank 0 reports about all ranks, and the other ranks print nothing.
#include "common/train/training_run.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "common/backend/op_observer.h"
#include "common/base/error.h"
#include "common/model/gpt2.h"
#include "stage0_serial/naive_backend.h"
#include "stage1_mpi/gradient_syncs.h"
#include "stage1_mpi/mpi_communicator.h"
#include "tests/data/make_tokenizers.h"
#include "tests/support/mpi_ranks.h"
#include "tests/support/program.h"
#include "tests/support/tensors.h"

namespace stagegpt::test {
namespace {

constexpr std::int64_t kTokens = 31, kLength = 8;

// Delays each micro-step by `pause`.
class Slow final : public OpObserver {
 public:
  Slow(Backend& backend, std::chrono::milliseconds pause) : OpObserver(backend), pause_(pause) {}
  void around(const OpCall& op, const std::function<void()>& kernel) override {
    if (op.name == std::string_view("embedding_forward")) std::this_thread::sleep_for(pause_);
    kernel();
  }

 private:
  std::chrono::milliseconds pause_;
};

TEST(TrainingRunOfRanks, NamesTheRankThatHoldsUpTheOthers) {
  if (ranks().size() == 1) GTEST_SKIP() << "there are no others";
  const int slow = ranks().size() - 1;
  const auto backend = make_naive_backend();
  const Slow observer(*backend, std::chrono::milliseconds(ranks().rank() == slow ? 40 : 0));
  const auto communicator = make_mpi_communicator(ranks(), *backend, CommAlgorithm::ring);
  const auto sync = make_gradient_sync("flat", *communicator, *backend);
  Gpt2 model(*backend, {.vocab_size = kTokens, .block_size = kLength, .n_layer = 1, .n_head = 1, .n_embd = 4},
             DType::f32, ranks().size());
  model.parameters().initialize(1);
  Corpus corpus;
  corpus.tokenizer = char_tokenizer("abc");
  corpus.train = TokenSequence(random_ids(1, 0, 300, kTokens));
  TrainingRunConfig config;
  config.trainer.batch_size = 12;
  config.trainer.schedule.steps = config.last_step = SlowRanks::kSteps;
  config.sample_every = SlowRanks::kSteps;
  config.sample = [] { return "a sample"; };
  config.peak = Peak{1e9, "made up"};
  TrainingRun run(*backend, *communicator, *sync, model, corpus, config);
  run.prepare();
  const ScratchDirectory scratch;
  std::optional<RunDirectory> directory;
  if (ranks().is_root()) directory = RunDirectory::create(scratch.path() / "run");
  testing::internal::CaptureStderr();
  run.run(directory ? &*directory : nullptr);
  const std::string told = testing::internal::GetCapturedStderr();
  if (!ranks().is_root()) {
    EXPECT_EQ(told, "");
    return;
  }
  const std::string who = concat("warning: rank ", slow, " (", ranks().host(slow), ") took ");
  const std::size_t at = told.find(who);
  ASSERT_NE(at, std::string::npos) << told;
  const std::string factor = told.substr(at + who.size(), told.find(" times") - at - who.size());
  EXPECT_GE(std::stod(factor), SlowRanks::kFactor) << told;
  EXPECT_LE(factor.size() - std::min(factor.find('.'), factor.size()), 2U) << told;  // one decimal place
  EXPECT_NE(told.find(" times the others' median over the last 50 steps; all ranks wait for it\n"),
            std::string::npos)
      << told;
  EXPECT_NE(told.find("sample after step 50:\na sample\n"), std::string::npos) << told;
}

}  // namespace
}  // namespace stagegpt::test
