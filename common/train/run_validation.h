// What a training run knows of its model's quality: losses on the validation part, answers to a task, and the
// best validation so far.
#pragma once

#include <cstdint>
#include <optional>

#include "common/backend/backend.h"
#include "common/data/corpus.h"
#include "common/model/language_model.h"
#include "common/parallel/grid.h"
#include "common/train/run_log.h"
#include "common/train/training_run_config.h"

namespace stagegpt {

class RunValidation {
 public:
  // The references, and config.task, are borrowed. All calls are collective. `log` is null except
  // on rank 0.
  RunValidation(Backend& backend, const Grid& grid, const LanguageModel& model, const Corpus& corpus,
                const TrainingRunConfig& config);

  // Takes the best validation of a run that is resumed.
  void restore(const std::optional<BestValidation>& best) { best_ = best; }
  // False after so many validations in a row (config.patience) that were not better than the best.
  bool has_patience() const { return patience_ == 0 || !best_ || best_->worse < patience_; }

  // After the weights have changed: what is known is of the old ones.
  void forget();
  // After `step` steps: validates, and answers the task. Returns whether this is the best validation so far.
  bool run(std::int64_t step, RunLog* log);
  // At the end of a call: what is known of the last weights. What is not known yet, as after a step at which
  // no validation is due, is measured now.
  void finish(TrainingResult& result, RunLog* log);

  const WindowSample& windows() const { return windows_; }
  // The work of each run(), in windows: those of the validation, and as many as have the tokens of the task.
  std::int64_t work() const { return work_; }
  double seconds() const { return seconds_; }
  // What is known of the current weights.
  const std::optional<ValidationResult>& validated() const { return validated_; }
  const std::optional<ChoiceResult>& answered() const { return answered_; }
  const std::optional<BestValidation>& best() const { return best_; }

 private:
  std::optional<ValidationResult> validate(RunLog* log);
  std::optional<ChoiceResult> answer(std::int64_t step, RunLog* log) const;

  Backend& backend_;
  Grid grid_;
  const LanguageModel& model_;
  const ChoiceTask* task_;
  std::int64_t seq_len_, batch_size_, patience_;
  std::optional<Validation> validation_;  // empty without validation
  WindowSample windows_;                  // of each validation
  std::int64_t work_;
  double seconds_ = 0;  // of all validations

  std::optional<ValidationResult> validated_;
  std::optional<ChoiceResult> answered_;
  std::optional<BestValidation> best_;
};

}  // namespace stagegpt
