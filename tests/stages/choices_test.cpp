// Log-likelihoods of endings, compared with the definition, and the accuracies of a task.
#include "common/train/choices.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "stage0_serial/naive_backend.h"
#include "tests/support/small_training.h"
#include "tests/support/stop_request.h"

namespace stagegpt::test {
namespace {

class LogLikelihoods : public testing::Test {
 protected:
  LogLikelihoods() : run_(make_naive_backend(), small_config(4, 1), random_tokens(500)) {
    std::int64_t begin = 0;
    for (const auto& [length, scored] :
         {std::pair{2, 1}, {5, 4}, {9, 1}, {9, 8}, {3, 2}, {static_cast<int>(kSmallT) + 1, 3}, {4, 1}}) {
      const auto first = run_.tokens.begin() + begin;
      continuations_.push_back({{first, first + length}, scored});
      begin += length;
    }
  }

  std::optional<std::vector<double>> found(const BatchOptions& options) {
    return log_likelihoods(run_.communicator.group(), *run_.backend, run_.model, continuations_, options);
  }
  // The model reads the continuation alone; ln p is computed in double.
  double defined(const Continuation& continuation) {
    const std::int64_t T = std::ssize(continuation.ids) - 1;
    Tape tape(*run_.backend, Tape::Mode::inference);
    const Tensor ids = to_device<std::int32_t>(*run_.backend, {1, T}, std::span(continuation.ids).first(T));
    const Tensor logits = run_.model.logits(tape, ids).value();
    const std::vector<float> rows = to_host<float>(*run_.backend, logits);
    double likelihood = 0;
    for (std::int64_t t = T - continuation.scored; t < T; ++t) {
      const float* row = rows.data() + t * logits.shape()[-1];
      double sum = 0;
      for (int v = 0; v < kSmallVocabulary; ++v) sum += std::exp(static_cast<double>(row[v]));
      likelihood += row[continuation.ids[static_cast<std::size_t>(t) + 1]] - std::log(sum);
    }
    return likelihood;
  }

  SmallTraining run_;
  std::vector<Continuation> continuations_;
};

TEST_F(LogLikelihoods, AreSumsOverTheScoredTokens) {
  for (const std::int64_t batch_size : {1, 3, 100}) {
    const auto likelihoods = found({.batch_size = batch_size});
    ASSERT_EQ(likelihoods->size(), continuations_.size());
    for (std::size_t i = 0; i < continuations_.size(); ++i)
      EXPECT_NEAR((*likelihoods)[i], defined(continuations_[i]), 1e-5) << i << " by " << batch_size;
  }
}

TEST_F(LogLikelihoods, TellHowFarTheyAre) {
  std::vector<std::int64_t> done;
  found({.batch_size = 3, .on_done = [&](std::int64_t n) { done.push_back(n); }});
  EXPECT_EQ(done, (std::vector<std::int64_t>{0, 3, 6, 7}));
}

TEST_F(LogLikelihoods, EndEarlyWhenASignalMayEndThem) {
  const auto evaluated = [&](bool stoppable) {
    return [this, stoppable] { std::_Exit(found({.stoppable = stoppable}) ? 1 : 2); };
  };
  EXPECT_EXIT(exit_as_stopped(evaluated(true)), testing::ExitedWithCode(2), "");
  EXPECT_EXIT(exit_as_stopped(evaluated(false)), testing::ExitedWithCode(1), "");
}

// A task whose endings are not read.
ChoiceTask task_of(std::vector<ChoiceQuestion> questions) { return {std::move(questions), {}, 0}; }

TEST(ChoiceScore, CountsTheRightEndings) {
  // By log-likelihood 0, 1, 0; by character 1, 1, 2.
  const ChoiceTask task = task_of({{{1, 10}, 1}, {{2, 2}, 1}, {{1, 1, 3}, 2}});
  const std::vector<double> likelihoods = {-2, -3, -5, -4, -1, -2, -1.5};
  const ChoiceResult result = score(task, likelihoods);
  EXPECT_EQ(result.acc, 1.0 / 3);
  EXPECT_EQ(result.acc_norm, 1);
  EXPECT_EQ(result.questions, 3);
}

TEST(ChoiceScore, TakesTheFirstOfEqualEndings) {
  const std::vector<double> likelihoods = {-2, -2};
  EXPECT_EQ(score(task_of({{{1, 1}, 0}}), likelihoods).acc, 1);
  EXPECT_EQ(score(task_of({{{1, 1}, 1}}), likelihoods).acc, 0);
  EXPECT_EQ(score(task_of({{{1, 1}, 1}}), likelihoods).acc_norm, 0);
}

TEST(ChoiceScore, NeverTakesAnEmptyEndingByCharacters) {
  const std::vector<double> likelihoods = {-0.5, -90};
  EXPECT_EQ(score(task_of({{{0, 1}, 1}}), likelihoods).acc_norm, 1);
}

TEST(ChoiceScore, IsUnknownIfAModelGivesNoNumber) {
  const std::vector<double> likelihoods = {-2, std::numeric_limits<double>::quiet_NaN()};
  const ChoiceResult result = score(task_of({{{1, 1}, 0}}), likelihoods);
  EXPECT_TRUE(std::isnan(result.acc));
  EXPECT_TRUE(std::isnan(result.acc_norm));
  EXPECT_EQ(result.questions, 1);
}

TEST(ChoiceScore, HasTheStandardErrorOfAShare) {
  EXPECT_DOUBLE_EQ(standard_error(0.2, 17), 0.1);
  EXPECT_EQ(standard_error(1, 2), 0);
}

TEST(ChoiceBatch, HasAsManyTokensAsWereAskedFor) {
  const ChoiceTask task{{{{1, 1}, 0}}, {{{1, 2, 3}, 1}, {{1, 2, 3, 4, 5}, 1}}, 0};
  EXPECT_EQ(choice_batch(task, 12), 3);
  EXPECT_EQ(choice_batch(task, 11), 2);
  EXPECT_EQ(choice_batch(task, 1), 1);
}

}  // namespace
}  // namespace stagegpt::test
