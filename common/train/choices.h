// Multiple-choice tasks: the log-likelihoods of endings, computed by all ranks together, and the accuracies.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/data/choice_task.h"
#include "common/model/language_model.h"
#include "common/train/batches_in_turn.h"

namespace stagegpt {

// The log-likelihood of each continuation, in nats: the sum of ln p over its last tokens, each given all
// tokens before it. All ranks get the same bits, which do not depend on their number. Empty if it was
// stopped, as in evaluate().
std::optional<std::vector<double>> log_likelihoods(RankGroup& group, Backend& backend,
                                                   const LanguageModel& model,
                                                   std::span<const Continuation> continuations,
                                                   const BatchOptions& options);

// Accuracies, as lm-evaluation-harness defines them. NaN if a log-likelihood is.
struct ChoiceResult {
  // Share of the questions of which the right ending has the highest log-likelihood …
  double acc = 0;
  // … divided by the number of its characters.
  double acc_norm = 0;
  std::int64_t questions = 0;
};

// `log_likelihoods` are those of task.endings.
ChoiceResult score(const ChoiceTask& task, std::span<const double> log_likelihoods);

// "task: acc 0.3120, acc_norm 0.3340 of 1,000 questions".
std::string description(const ChoiceResult& result);

// The standard error of an accuracy: √(p(1-p)/(n-1)), for n questions, at least 2.
double standard_error(double accuracy, std::int64_t questions);

// Evaluates a model on a task: score() of its log_likelihoods().
std::optional<ChoiceResult> evaluate_choices(RankGroup& group, Backend& backend, const LanguageModel& model,
                                             const ChoiceTask& task, const BatchOptions& options);

// Number of tokens that a model reads for the longest continuation of a task.
std::int64_t longest_inputs(const ChoiceTask& task);

// Number of endings in a batch of at most `tokens` tokens, at least 1.
std::int64_t choice_batch(const ChoiceTask& task, std::int64_t tokens);

}  // namespace stagegpt
