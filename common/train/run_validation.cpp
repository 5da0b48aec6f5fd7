#include "common/train/run_validation.h"

#include <algorithm>
#include <chrono>

#include "common/base/seconds_since.h"
#include "common/checkpoint/trainer_state.h"

namespace stagegpt {
namespace {

std::int64_t tokens_of(const ChoiceTask* task) {
  std::int64_t tokens = 0;
  if (task != nullptr) {
    for (const Continuation& ending : task->endings) tokens += std::ssize(ending.ids);
  }
  return tokens;
}

}  // namespace

RunValidation::RunValidation(Backend& backend, const Grid& grid, const LanguageModel& model,
                             const Corpus& corpus, const TrainingRunConfig& config)
    : backend_(backend),
      grid_(grid),
      model_(model),
      task_(config.task),
      seq_len_(model.config().block_size),
      batch_size_(config.trainer.batch_size),
      patience_(config.patience),
      windows_(validation_sample(corpus.validation.size(), seq_len_, config)),
      work_(windows_.count + tokens_of(task_) / seq_len_) {
  if (windows_.all == 0) return;
  validation_.emplace(corpus.validation, *corpus.tokenizer, seq_len_, batch_size_, grid.model().size());
}

void RunValidation::forget() {
  validated_.reset();
  answered_.reset();
}

bool RunValidation::run(std::int64_t step, RunLog* log) {
  validated_ = validate(log);
  if (validated_) best_ = after_validation(best_, step, validated_->loss, validated_->tokens);
  answered_ = answer(step, log);
  return validated_ && best_->step == step;
}

void RunValidation::finish(TrainingResult& result, RunLog* log) {
  if (!answered_) answered_ = answer(result.steps, log);
  if (!validated_) validated_ = validate(log);
  result.task = answered_;
  result.validation = validated_;
}

std::optional<ValidationResult> RunValidation::validate(RunLog* log) {
  if (!validation_) return std::nullopt;
  const auto begin = std::chrono::steady_clock::now();
  const auto progress = [log](std::int64_t done, std::int64_t total) {
    if (log) log->validation(done, total);
  };
  auto result =
      validation_->run(grid_.data().group(), backend_, model_, windows_, progress, &grid_.world().group());
  const double seconds = seconds_since(begin);
  seconds_ += seconds;
  if (result) result->seconds = seconds;
  return result;
}

std::optional<ChoiceResult> RunValidation::answer(std::int64_t step, RunLog* log) const {
  if (!task_) return std::nullopt;
  const std::int64_t windows = std::min(batch_size_, evaluation_batch(seq_len_));
  const BatchOptions options{.batch_size = choice_batch(*task_, windows * seq_len_),
                             .stoppable = true,
                             .stopping = &grid_.world().group()};
  const auto result = evaluate_choices(grid_.data().group(), backend_, model_, *task_, options);
  if (result && log) log->note(concat("after step ", step, ": ", description(*result)));
  return result;
}

}  // namespace stagegpt
