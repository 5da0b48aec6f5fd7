// The selection of validation tokens, and the results of the validation.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "common/autograd/ops/cross_entropy.h"
#include "common/train/evaluate.h"
#include "common/train/training_run.h"
#include "stage0_serial/naive_backend.h"
#include "tests/data/make_tokenizers.h"
#include "tests/support/small_training.h"
#include "tests/support/stop_request.h"

namespace stagegpt::test {
namespace {

std::vector<std::int64_t> numbers(const WindowSample& sample) {
  std::vector<std::int64_t> windows;
  for (std::int64_t i = 0; i < sample.count; ++i) windows.push_back(sample[i]);
  return windows;
}

TEST(WindowSample, IsSpreadEvenly) {
  EXPECT_EQ(numbers({10, 4}), (std::vector<std::int64_t>{0, 2, 5, 7}));
  std::vector<std::int64_t> all(7);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(numbers({7, 7}), all);
  for (const WindowSample& sample : {WindowSample{871, 256}, {1000, 999}, {1'000'000'007, 1024}}) {
    std::int64_t least = sample.all, most = 0, end = 0;
    for (const std::int64_t window : numbers(sample)) {
      if (window == 0) continue;
      least = std::min(least, window - end);
      most = std::max(most, window - end);
      end = window;
    }
    EXPECT_EQ(least, sample.all / sample.count);
    EXPECT_LE(most, least + 1);
    EXPECT_LE(sample.all - end, least + 1);
    EXPECT_LT(end, sample.all);
  }
}

TEST(ValidationSample, IsWhatWasAskedForInWholeWindows) {
  EXPECT_EQ(validation_sample(1000, 10, 0).count, 99);  // the last token has no next one
  EXPECT_EQ(validation_sample(1001, 10, 0).count, 100);
  EXPECT_EQ(validation_sample(1001, 10, 59).count, 5);
  EXPECT_EQ(validation_sample(1001, 10, 3).count, 1);
  EXPECT_EQ(validation_sample(1001, 10, 5000).count, 100);
  EXPECT_EQ(validation_sample(0, 10, 7).count, 0);
}

// A run of 1,000 steps of 20 windows: 60,000 passes.
TrainingRunConfig long_run() {
  TrainingRunConfig config;
  config.trainer.batch_size = 4;
  config.trainer.grad_accumulation = 5;
  config.trainer.schedule.steps = config.last_step = 1000;
  config.eval_every = 100;
  config.checkpoint_every = 1000;
  return config;
}

TEST(ValidationSample, UsuallyTakesATenthOfTheTraining) {
  TrainingRunConfig config = long_run();
  EXPECT_EQ(usual_eval_tokens(config, 8), 8 * 600);  // 10 validations share 6,000 passes
  config.checkpoint_every = 150;                     // 100, 150, 200, 300, …, 750, …, 1000: 13
  EXPECT_EQ(usual_eval_tokens(config, 8), 8 * (6000 / 13));
  config.eval_every = 400;  // 150, 300, 400, 450, 600, 750, 800, 900, 1000
  EXPECT_EQ(usual_eval_tokens(config, 8), 8 * (6000 / 9));
  config.trainer.schedule.steps = 5;  // one, at the end: 30 passes are fewer than the least number of windows
  EXPECT_EQ(usual_eval_tokens(config, 8), 8 * 64);
  config.trainer.schedule.steps = 1'000'000'000;
  config.trainer.batch_size = config.trainer.grad_accumulation = 1 << 20;
  EXPECT_EQ(usual_eval_tokens(config, 1 << 20), 1'000'000'000'000'000);
}

TEST(ValidationSample, IsNothingWithoutValidation) {
  TrainingRunConfig config = long_run();
  config.eval_every = 0;
  EXPECT_EQ(validation_sample(1001, 10, config).all, 0);
  EXPECT_EQ(share_done(0, 100, config, 7), 0.1);
}

TEST(ValidationSample, CountsInTheWorkOfARun) {
  const TrainingRunConfig config = long_run();
  constexpr double kAll = 1000 * 60 + 10 * 7;
  EXPECT_DOUBLE_EQ(share_done(0, 99, config, 7), 99 * 60 / kAll);
  EXPECT_DOUBLE_EQ(share_done(0, 100, config, 7), (100 * 60 + 7) / kAll);
  EXPECT_DOUBLE_EQ(share_done(500, 600, config, 7), 0.2);
  EXPECT_EQ(share_done(500, 1000, config, 7), 1);
}

class EvaluateTest : public testing::Test {
 protected:
  EvaluateTest() : run_(make_naive_backend(), small_config(4, 1), random_tokens(500)) {}

  std::optional<Evaluation> evaluation(const WindowSample& sample, const BatchOptions& options = {},
                                       std::span<const std::int32_t> token_bytes = {}) {
    return evaluate(run_.communicator.group(), *run_.backend, run_.model, run_.data.tokens(),
                    sampled_windows(sample, kSmallT), options, token_bytes);
  }
  // The loss of one window, computed by the model.
  double loss_of(std::int64_t window) {
    const std::vector<std::int32_t> ids(run_.tokens.begin() + window * kSmallT,
                                        run_.tokens.begin() + (window + 1) * kSmallT),
        targets(run_.tokens.begin() + window * kSmallT + 1, run_.tokens.begin() + (window + 1) * kSmallT + 1);
    Tape tape(*run_.backend, Tape::Mode::inference);
    const Var loss = run_.model.loss(tape, to_device<std::int32_t>(*run_.backend, {1, kSmallT}, ids),
                                     to_device<std::int32_t>(*run_.backend, {1, kSmallT}, targets), {});
    return to_host<float>(*run_.backend, loss.value())[0];
  }

  SmallTraining run_;
};

TEST_F(EvaluateTest, IsTheMeanOverTheWindowsThatAreTaken) {
  for (const WindowSample& windows : {WindowSample{29, 29}, {29, 7}, {29, 1}}) {
    double expected = 0;
    for (const std::int64_t window : numbers(windows))
      expected += loss_of(window) / static_cast<double>(windows.count);
    for (const std::int64_t batch_size : {1, 3, 1000}) {
      const Evaluation found = *evaluation(windows, {.batch_size = batch_size});
      EXPECT_NEAR(found.loss, expected, 1e-6) << windows.count << " by " << batch_size;
      EXPECT_EQ(found.tokens, windows.count * kSmallT);
      EXPECT_FALSE(found.bytes);
    }
  }
}

TEST_F(EvaluateTest, CountsTheBytesOfItsTargets) {
  std::vector<std::int32_t> token_bytes(kSmallVocabulary);
  std::iota(token_bytes.begin(), token_bytes.end(), 0);
  const WindowSample windows{29, 7};
  std::int64_t expected = 0;
  std::int32_t absent = 0;  // a token that is not among the targets of these windows
  std::vector<bool> seen(kSmallVocabulary);
  for (const std::int64_t window : numbers(windows)) {
    for (std::int64_t i = window * kSmallT + 1; i <= (window + 1) * kSmallT; ++i) {
      expected += run_.tokens[i];
      seen[run_.tokens[i]] = true;
    }
  }
  EXPECT_EQ(evaluation(windows, {.batch_size = 3}, token_bytes)->bytes, expected);
  absent = static_cast<std::int32_t>(std::ranges::find(seen, false) - seen.begin());
  if (absent < kSmallVocabulary) {
    token_bytes[absent] = kUnknownBytes;
    EXPECT_EQ(evaluation(windows, {}, token_bytes)->bytes, expected);
  }
  token_bytes[run_.tokens[1]] = kUnknownBytes;
  EXPECT_FALSE(evaluation(windows, {}, token_bytes)->bytes);
}

TEST_F(EvaluateTest, TellsHowFarItIs) {
  std::vector<std::int64_t> done;
  evaluation(WindowSample{29, 7}, {.batch_size = 3, .on_done = [&](std::int64_t n) { done.push_back(n); }});
  EXPECT_EQ(done, (std::vector<std::int64_t>{0, 3, 6, 7}));
}

TEST_F(EvaluateTest, EndsEarlyWhenASignalMayEndIt) {
  const auto evaluated = [&](bool stoppable) {
    return [this, stoppable] {
      int calls = 0;
      const auto begin = [&](std::int64_t) { ++calls; };
      const auto found =
          evaluation(WindowSample{29, 29}, {.batch_size = 3, .stoppable = stoppable, .on_done = begin});
      std::_Exit(found ? 1 : 2 + calls);
    };
  };
  EXPECT_EXIT(exit_as_stopped(evaluated(true)), testing::ExitedWithCode(2), "");
  EXPECT_EXIT(exit_as_stopped(evaluated(false)), testing::ExitedWithCode(1), "");
  const auto by_default = [&] { std::_Exit(evaluation(WindowSample{29, 29}) ? 1 : 2); };
  EXPECT_EXIT(exit_as_stopped(by_default), testing::ExitedWithCode(1), "");
}

// A signal ends a validation of more than kUnstoppedTokens tokens, but none of as many.
TEST(ValidationDeathTest, OfFewTokensIsNotEndedByASignal) {
  constexpr std::int64_t kLength = 8, kWindows = kUnstoppedTokens / kLength;
  Gpt2Config config;
  config.vocab_size = 3;
  config.block_size = kLength;
  config.n_layer = config.n_head = 1;
  config.n_embd = 2;
  const auto backend = make_naive_backend();
  Gpt2 model(*backend, config);
  model.parameters().initialize(1);
  const std::vector<std::int32_t> ids(static_cast<std::size_t>((kWindows + 1) * kLength + 1), 1);
  SingleProcess group;
  const Validation validation(TokenSequence(ids), *char_tokenizer("ab"), kLength, 64);
  const auto validated = [&](std::int64_t windows) {
    return [&, windows] {
      std::_Exit(validation.run(group, *backend, model, {kWindows + 1, windows}, {}) ? 1 : 2);
    };
  };
  EXPECT_EXIT(exit_as_stopped(validated(kWindows)), testing::ExitedWithCode(1), "");
  EXPECT_EXIT(exit_as_stopped(validated(kWindows + 1)), testing::ExitedWithCode(2), "");
}

// The words of the text become longer, so the number of bytes per token is different in different parts.
TEST(Validation, HasBitsPerByteOfTheVeryTokensThatItEvaluates) {
  std::string text;
  for (int i = 0; i < 30; ++i) text += "ab ";
  for (int i = 0; i < 30; ++i) text += "abcdefghij ";
  const auto tokenizer = word_tokenizer(text);
  const TokenSequence tokens(tokenizer->encode(text));
  const auto backend = make_naive_backend();
  SingleProcess group;
  Gpt2Config config = SmallTraining::model_config(0);
  config.vocab_size = tokenizer->size();
  Gpt2 model(*backend, config);
  model.parameters().initialize(1);
  const Validation validation(tokens, *tokenizer, 10, 2);
  const std::int64_t all = (tokens.size() - 1) / 10;
  for (const WindowSample& windows : {WindowSample{all, 1}, {all, all}}) {
    std::int64_t bytes = 0;
    for (const std::int64_t window : numbers(windows)) {
      bytes += std::ssize(tokenizer->decode(tokens.read(window * 10 + 1, 10)));
    }
    const auto result = validation.run(group, *backend, model, windows, {});
    EXPECT_EQ(result->tokens, windows.count * 10);
    EXPECT_NEAR(
        *result->bits_per_byte,
        result->loss / std::log(2.0) * static_cast<double>(result->tokens) / static_cast<double>(bytes),
        1e-12);
  }
}

// The limit does not depend on the batch size of the training. Windows of more than 4096 tokens are evaluated
// one at a time.
TEST(Validation, TakesAtMost4096TokensAtOnce) {
  const auto tokenizer = word_tokenizer("a b");
  const auto backend = make_naive_backend();
  SingleProcess group;
  const Gpt2 model(
      *backend,
      {.vocab_size = tokenizer->size(), .block_size = 5000, .n_layer = 1, .n_head = 1, .n_embd = 2});
  const auto steps = [&](std::int64_t windows, std::int64_t seq_len, std::int64_t batch_size,
                         int ranks_of_model = 1) {
    const TokenSequence tokens(std::vector<std::int32_t>(static_cast<std::size_t>(windows * seq_len + 1), 3));
    const Validation validation(tokens, *tokenizer, seq_len, batch_size, ranks_of_model);
    std::vector<std::pair<std::int64_t, std::int64_t>> told;
    validation.run(group, *backend, model, {windows, windows},
                   [&](std::int64_t done, std::int64_t total) { told.emplace_back(done, total); });
    return told;
  };
  using Steps = std::vector<std::pair<std::int64_t, std::int64_t>>;
  EXPECT_EQ(steps(513, 8, 1000), (Steps{{0, 4104}, {4096, 4104}, {4104, 4104}}));
  EXPECT_EQ(steps(5, 8, 3), (Steps{{0, 40}, {24, 40}, {40, 40}}));
  EXPECT_EQ(steps(2, 4097, 2), (Steps{{0, 8194}, {4097, 8194}, {8194, 8194}}));
  EXPECT_EQ(steps(513, 8, 1000, 2), (Steps{{0, 4104}, {2048, 4104}, {4096, 4104}, {4104, 4104}}));
  EXPECT_EQ(steps(2, 8, 3, 4), (Steps{{0, 16}, {8, 16}, {16, 16}}));
}

}  // namespace
}  // namespace stagegpt::test
