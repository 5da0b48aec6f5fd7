#include "common/train/run_validation.h"

#include <algorithm>

#include "common/base/grouped.h"
#include "common/train/early_stopping.h"

namespace stagegpt {

RunValidation::RunValidation(Backend& backend, const Grid& grid, const LanguageModel& model,
                             const Corpus& corpus, const TrainingRunConfig& config)
    : backend_(backend),
      grid_(grid),
      model_(model),
      task_(config.task),
      seq_len_(model.config().block_size),
      batch_size_(config.trainer.batch_size),
      patience_(config.patience),
      steps_of_schedule_(config.trainer.schedule.steps),
      sample_(validation_sample(corpus.validation.size(), seq_len_, config)) {
  if (sample_.all == 0) return;
  validation_.emplace(corpus.validation, *corpus.tokenizer, seq_len_, batch_size_, grid.model().size());
}

void RunValidation::forget() {
  validated_.reset();
  answered_.reset();
}

bool RunValidation::run(std::int64_t step, RunLog* log) {
  if (validation_) validated_ = validate(sample_, log);
  if (validated_) best_ = after_validation(best_, step, validated_->loss, validated_->tokens);
  answered_ = answer(log);
  return validated_ && best_->step == step;
}

void RunValidation::run_on_all(TrainingResult& result, bool own_steps, RunLog* log) {
  if (task_) {
    result.task = answered_ ? answered_ : answer(log);
    result.interrupted = !result.task;
  }
  if (!validation_ || result.interrupted) return;
  const WindowSample all = validation_->all();
  if (log && own_steps && !sample_.is_all())
    log->note(concat("validation of all ", grouped(all.count * seq_len_), " tokens"));
  result.validation = validated_ && sample_.is_all() ? validated_ : validate(all, log);
  result.interrupted = !result.validation;
  const bool last_of_run = result.steps == steps_of_schedule_ || result.best_validation;
  if (result.validation && last_of_run && log) log->validation_of_all(result.steps, *result.validation);
}

std::optional<ValidationResult> RunValidation::validate(const WindowSample& windows, RunLog* log) const {
  const auto progress = [log](std::int64_t done, std::int64_t total) {
    if (log) log->validation(done, total);
  };
  return validation_->run(grid_.data().group(), backend_, model_, windows, progress, &grid_.world().group());
}

std::optional<ChoiceResult> RunValidation::answer(RunLog* log) const {
  if (!task_) return std::nullopt;
  const std::int64_t windows = std::min(batch_size_, evaluation_batch(seq_len_));
  const ChoiceOptions options{.batch_size = choice_batch(*task_, windows * seq_len_),
                              .stoppable = true,
                              .stopping = &grid_.world().group()};
  const auto result = evaluate_choices(grid_.data().group(), backend_, model_, *task_, options);
  if (result && log) log->note(description(*result));
  return result;
}

}  // namespace stagegpt
