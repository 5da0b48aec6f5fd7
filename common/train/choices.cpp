#include "common/train/choices.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "common/autograd/ops/cross_entropy.h"
#include "common/base/error.h"
#include "common/base/grouped.h"

namespace stagegpt {
namespace {

// The inputs of a batch (B,T). T is that of the longest continuation; the others are padded at their ends,
// which causal attention does not see.
Tensor padded_inputs(Backend& backend, std::span<const Continuation> batch) {
  std::size_t T = 0;
  for (const Continuation& continuation : batch) T = std::max(T, continuation.ids.size() - 1);
  std::vector<std::int32_t> ids(batch.size() * T, 0);
  for (std::size_t row = 0; row < batch.size(); ++row)
    std::copy(batch[row].ids.begin(), batch[row].ids.end() - 1,
              ids.begin() + static_cast<std::ptrdiff_t>(row * T));
  return to_device<std::int32_t>(backend, {std::ssize(batch), static_cast<std::int64_t>(T)}, ids);
}

// The sum of ln p over the scored tokens. `logits` (T,Vp), flat, are those of the continuation's inputs.
double log_likelihood(Backend& backend, const Continuation& continuation, const Tensor& logits,
                      std::int64_t first_row, std::int64_t V) {
  const std::int64_t scored = continuation.scored, Vp = logits.shape()[-1];
  const std::int64_t row = first_row + std::ssize(continuation.ids) - 1 - scored;
  const std::span<const std::int32_t> last =
      std::span(continuation.ids).last(static_cast<std::size_t>(scored));
  const Tensor targets = to_device<std::int32_t>(backend, {1, scored}, last);
  Tape tape(backend, Tape::Mode::inference);
  const Var mean = cross_entropy(tape, Var(logits.slice(row * Vp, {1, scored, Vp})), targets, V);
  return -static_cast<double>(to_host<float>(backend, mean.value())[0]) * static_cast<double>(scored);
}

// Index of the largest; the first of several. Empty if one is NaN.
std::optional<std::size_t> index_of_largest(std::span<const double> values) {
  if (std::ranges::any_of(values, [](double value) { return std::isnan(value); })) return std::nullopt;
  return static_cast<std::size_t>(std::ranges::max_element(values) - values.begin());
}

}  // namespace

std::optional<std::vector<double>> log_likelihoods(RankGroup& group, Backend& backend,
                                                   const LanguageModel& model,
                                                   std::span<const Continuation> continuations,
                                                   const BatchOptions& options) {
  const std::int64_t count = std::ssize(continuations);
  const auto compute = [&](std::int64_t first, std::int64_t end, std::span<double> results) {
    const auto batch =
        continuations.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(end - first));
    const Tensor ids = padded_inputs(backend, batch);
    Tape tape(backend, Tape::Mode::inference);
    const Tensor logits = model.logits(tape, ids).value();  // (B,T,Vp)
    for (std::size_t row = 0; row < batch.size(); ++row)
      results[row] =
          log_likelihood(backend, batch[row], logits, static_cast<std::int64_t>(row) * ids.shape()[1],
                         model.config().vocab_size);
  };
  auto all = compute_in_turn<double>(group, count, options.batch_size, options, compute);
  if (all) all->resize(static_cast<std::size_t>(count));  // the last batch may have fewer
  return all;
}

ChoiceResult score(const ChoiceTask& task, std::span<const double> log_likelihoods) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  std::int64_t right = 0, right_norm = 0;
  for (const ChoiceQuestion& question : task.questions) {
    const auto own = log_likelihoods.first(question.characters.size());
    log_likelihoods = log_likelihoods.subspan(own.size());
    std::vector<double> by_character(own.begin(), own.end());
    for (std::size_t i = 0; i < own.size(); ++i)
      by_character[i] /= static_cast<double>(question.characters[i]);
    const auto chosen = index_of_largest(own);
    if (!chosen) return {kNan, kNan, std::ssize(task.questions)};
    right += chosen == question.label;
    right_norm += index_of_largest(by_character) == question.label;
  }
  const auto questions = static_cast<double>(task.questions.size());
  return {static_cast<double>(right) / questions, static_cast<double>(right_norm) / questions,
          std::ssize(task.questions)};
}

std::string description(const ChoiceResult& result) {
  char accuracies[64];
  std::snprintf(accuracies, sizeof accuracies, "task: acc %.4f, acc_norm %.4f of ", result.acc,
                result.acc_norm);
  return concat(accuracies, grouped(result.questions), result.questions == 1 ? " question" : " questions");
}

double standard_error(double accuracy, std::int64_t questions) {
  return std::sqrt(accuracy * (1 - accuracy) / static_cast<double>(questions - 1));
}

std::optional<ChoiceResult> evaluate_choices(RankGroup& group, Backend& backend, const LanguageModel& model,
                                             const ChoiceTask& task, const BatchOptions& options) {
  const auto likelihoods = log_likelihoods(group, backend, model, task.endings, options);
  return likelihoods ? std::optional(score(task, *likelihoods)) : std::nullopt;
}

std::int64_t longest_inputs(const ChoiceTask& task) {
  std::int64_t longest = 1;
  for (const Continuation& ending : task.endings) longest = std::max(longest, std::ssize(ending.ids) - 1);
  return longest;
}

std::int64_t choice_batch(const ChoiceTask& task, std::int64_t tokens) {
  return std::max<std::int64_t>(1, tokens / longest_inputs(task));
}

}  // namespace stagegpt
