// What a training run knows of its model's quality: losses on the validation part and answers to a task,
// between steps and at the end, and the best validation so far.
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
  // After `step` steps: validates on the sample, and answers the task. Returns whether this is the best
  // validation so far.
  bool run(std::int64_t step, RunLog* log);
  // At the end, on all tokens. `own_steps`: whether this process has trained. A signal interrupts it.
  void run_on_all(TrainingResult& result, bool own_steps, RunLog* log);

  // What is known of the current weights.
  const std::optional<ValidationResult>& validated() const { return validated_; }
  const std::optional<ChoiceResult>& answered() const { return answered_; }
  const std::optional<BestValidation>& best() const { return best_; }

 private:
  std::optional<ValidationResult> validate(const WindowSample& windows, RunLog* log) const;
  std::optional<ChoiceResult> answer(RunLog* log) const;

  Backend& backend_;
  Grid grid_;
  const LanguageModel& model_;
  const ChoiceTask* task_;
  std::int64_t seq_len_, batch_size_, patience_;
  std::int64_t steps_of_schedule_;
  std::optional<Validation> validation_;  // empty if there is no validation part
  WindowSample sample_;                   // windows to be validated between steps

  std::optional<ValidationResult> validated_;  // on the sample
  std::optional<ChoiceResult> answered_;
  std::optional<BestValidation> best_;
};

}  // namespace stagegpt
