// A training run, from its first step or from a checkpoint: steps, validation, metrics, checkpoints.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "common/data/corpus.h"
#include "common/logging/metrics_log.h"
#include "common/logging/progress.h"
#include "common/logging/step_metrics.h"
#include "common/logging/step_trace.h"
#include "common/logging/tensorboard_log.h"
#include "common/measure/peak.h"
#include "common/profile/profile.h"
#include "common/train/checkpoint_saver.h"
#include "common/train/choices.h"
#include "common/train/early_stopping.h"
#include "common/train/slow_ranks.h"
#include "common/train/trainer.h"
#include "common/train/validation.h"

namespace stagegpt {

// What to do if a step's loss or gradient is not finite. Weights are never updated with such a gradient.
enum class NonFinite : std::uint8_t { stop, skip };

struct TrainingRunConfig {
  TrainerConfig trainer;
  std::int64_t last_step = 1;  // after which to stop, at most trainer.schedule.steps
  std::int64_t eval_every = 100;
  std::optional<std::int64_t> eval_tokens;  // see validation_sample()
  std::int64_t checkpoint_every = 1000;
  std::int64_t sample_every = 0;  // 0: never
  std::int64_t trace_steps = 0;   // number of first steps in run() whose tensors are recorded
  std::int64_t watch_layers = 0;  // the layers are measured every so many steps; 0: never
  KeepRule keep;
  // The run ends after this many validations in a row that are not better than the best one before; 0: never.
  std::int64_t patience = 0;
  const ChoiceTask* task = nullptr;  // questions that are answered with every validation
  NonFinite non_finite = NonFinite::stop;
  std::function<std::string()> sample;  // generates a text with the current model; called on all ranks
  std::optional<Peak> peak;             // of this rank, for MFU; measured if not given
  Profile* profile = nullptr;  // of some steps; written also if a signal or --patience ends the run earlier
};

// The windows that such a run validates between steps, of a validation part of `tokens` tokens.
WindowSample validation_sample(std::int64_t tokens, std::int64_t seq_len, const TrainingRunConfig& config);

struct TrainingResult {
  std::int64_t steps = 0;            // completed steps, including those before it was resumed
  std::optional<double> train_loss;  // of the last step; empty if run() did no step
  // Over the whole validation part. Empty if there is none, or if a signal has interrupted the run.
  std::optional<ValidationResult> validation;
  // Of the task, with the last weights. Empty without one, or if a signal has interrupted the run.
  std::optional<ChoiceResult> task;
  // If it ended before last_step, for want of patience: the best validation.
  std::optional<BestValidation> best_validation;
  std::optional<double> tokens_per_second;
  double seconds = 0;
  bool interrupted =
      false;  // by a signal, before last_step or in the last validation; a checkpoint was saved
};

class TrainingRun {
 public:
  // The arguments must outlive the run, which starts with the model's weights. All calls are collective; an
  // exception is thrown on all ranks. `sync` and `model` are as for Trainer.
  TrainingRun(Backend& backend, const Grid& grid, GradientSync& sync, LanguageModel& model,
              const Corpus& corpus, const TrainingRunConfig& config);

  // Restores the state of a checkpoint, except the weights, which the model already has.
  // Rank 0 reads it, but each rank reads the moments that it owns.
  // Throws UserError if it does not match the model, the data or the seed.
  void resume(const std::filesystem::path& checkpoint);

  // Preparations before the first step. Throws Stopped if a signal has been received (stop_signals.h);
  // nothing has been written yet.
  void prepare();

  // Trains while there are steps left, or until a signal is received, and saves a checkpoint. At the end it
  // also validates on all tokens; if no step remains, it does only this and writes nothing. If a checkpoint
  // cannot be written, a warning is printed and the next one is tried; the last one throws. Throws
  // std::runtime_error if a loss or gradient is not finite and config.non_finite is stop. `directory` is null
  // except on rank 0, which writes.
  TrainingResult run(RunDirectory* directory);

 private:
  // Whether there is a step to train: before last_step, and with patience left.
  bool has_steps_left() const;
  // Opens the logs of rank 0; the files only if steps remain.
  void open_logs();
  // Opens metrics and TensorBoard's files, and removes entries after the completed steps.
  void open_files();
  // Steps while there are any, or until a signal is received. Returns whether it was.
  bool train_steps(TrainingResult& result);
  // Whether any rank has received a signal.
  bool stop_requested() const;
  // Finds the peak of all ranks together, for MFU.
  void find_peak();
  // step(), recorded if the step is part of the profile.
  void profiled_step(TrainingResult& result);
  // Writes the profile if that has not been done. A run does not end for it: notes where it is, or a warning.
  void write_profile();
  // One step, then validation, metrics, sample and checkpoint if they are due.
  void step(TrainingResult& result);
  // One training step, with the health of its layers every watch_layers steps.
  StepReport train();
  // The same, with a trace if it is one of the first trace_steps. `layers` may be null.
  StepReport traced_step(LayerWatch* layers);
  // Of the last step, on rank 0. A collective call.
  void write_step_trace(std::vector<TracedOutput> outputs, double loss);
  void log(const StepReport& report);
  // Validates on the sample, after a step. Returns whether this is the best validation so far.
  bool validate();
  // Answers the task's questions.
  std::optional<ChoiceResult> answer();
  // Validates on all tokens, at the end. `own_steps`: whether this call of run() did any step.
  void validate_all(TrainingResult& result, bool own_steps);
  std::optional<ValidationResult> validate(const WindowSample& windows);
  // Adds this validation to the metrics of the last step, unless it is there already.
  void log_all(const ValidationResult& validation);
  void sample();
  // Prints a line, on rank 0.
  void note(const std::string& text);
  TrainerState read_state(const std::filesystem::path& checkpoint) const;
  bool trained_on_these_tokens(const TrainerState& state) const;
  bool due(std::int64_t every) const;
  // Throws or prints a note, according to config.non_finite.
  void on_non_finite(const StepReport& report);
  StepMetrics metrics_of(const StepReport& report) const;
  std::optional<double> validation_loss() const;
  // Saves a checkpoint.
  void save();
  // The same, but prints a warning if the run can continue without it (disk full, out of memory).
  void try_to_save();
  // Undoes a step that was skipped, and saves a checkpoint. Returns whether there is one now.
  bool save_before(std::int64_t step);
  TrainerState state() const;

  Backend& backend_;
  Grid grid_;
  RankGroup& group_;  // of all ranks
  LanguageModel& model_;
  ParameterTable table_;  // of the whole model
  const Tokenizer& tokenizer_;
  RunDirectory* directory_ = nullptr;
  TrainingRunConfig config_;
  DataLoader data_;
  TokenIdentity train_identity_;
  std::optional<Validation> validation_;  // empty if there is no validation part
  WindowSample sample_;                   // windows to be validated between steps
  Trainer trainer_;
  CheckpointSaver saver_;
  // On rank 0 only.
  std::optional<Progress> progress_;
  std::optional<MetricsLog> metrics_;
  std::optional<TensorBoardLog> tensorboard_;
  SlowRanks slow_ranks_;

  std::optional<ValidationResult> validated_;  // on the sample, after the last step
  std::optional<ChoiceResult> answered_;       // after the last step
  std::vector<LayerHealth> layers_;            // in the last step; empty if it was not measured
  std::optional<BestValidation> best_validation_;
  std::int64_t traced_until_ = 0;  // end of the traced steps
  bool profile_noted_ = false;
  double peak_flops_per_second_ = 0;
  std::int64_t saved_step_ = -1;                           // of the newest checkpoint
  std::int64_t non_finite_steps_ = 0, skipped_steps_ = 0;  // in this process
};

}  // namespace stagegpt
