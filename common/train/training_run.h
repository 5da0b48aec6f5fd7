// A training run, from its first step or from a checkpoint: steps, validation, metrics, checkpoints.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "common/data/corpus.h"
#include "common/train/run_log.h"
#include "common/train/run_validation.h"
#include "common/train/trainer.h"
#include "common/train/training_run_config.h"

namespace stagegpt {

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

  // Trains while there are steps left, or until a signal is received, and saves a checkpoint. At the end the
  // model is validated; if no step remains, nothing else is done, and nothing is written. If a checkpoint
  // cannot be written, a warning is printed and the next one is tried; the last one throws. Throws
  // std::runtime_error if a loss or gradient is not finite and config.non_finite is stop, or if a hundred
  // steps in a row were skipped. `directory` is null except on rank 0, which writes.
  TrainingResult run(RunDirectory* directory);

 private:
  // Whether there is a step to train: before last_step, and with patience left.
  bool has_steps_left() const;
  // Opens the log of rank 0; its files only if steps remain.
  void open_log();
  RunLog* log() { return log_ ? &*log_ : nullptr; }
  // Tokens of a step.
  std::int64_t step_tokens() const {
    return config_.trainer.batch_size * config_.trainer.grad_accumulation * data_.seq_len();
  }
  // Steps while there are any, or until a signal is received. Returns whether it was.
  bool train_steps(TrainingResult& result);
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
  // One training step, with a trace if it is one of the first trace_steps. `layers` may be null.
  StepReport train(LayerWatch* layers);
  void sample();
  // Prints a line, on rank 0.
  void note(const std::string& text);
  bool due(std::int64_t every) const;
  // Throws or prints a note, according to config.non_finite.
  void on_non_finite(const StepReport& report);
  StepMetrics metrics_of(const StepReport& report) const;
  // Saves a checkpoint.
  void save();
  // Saves a checkpoint, but prints a warning if the run can continue without it (disk full, out of memory).
  void try_to_save();
  // Undoes a step that was skipped, and saves a checkpoint. Returns whether there is one now.
  bool save_before(std::int64_t step);
  TrainerState state() const;

  Backend& backend_;
  Grid grid_;
  RankGroup& group_;  // of all ranks
  LanguageModel& model_;
  ParameterTable table_;  // of the whole model
  RunDirectory* directory_ = nullptr;
  TrainingRunConfig config_;
  DataLoader data_;
  const Corpus& corpus_;
  RunValidation validation_;
  Trainer trainer_;
  NonFiniteSteps non_finite_;
  std::optional<RunLog> log_;  // on rank 0, from run() on

  std::vector<LayerHealth> layers_;  // in the last step; empty if it was not measured
  std::int64_t first_step_ = 0;      // before the first step of this call
  std::int64_t traced_until_ = 0;    // end of the traced steps
  bool profile_noted_ = false;
  double peak_flops_per_second_ = 0;
  std::int64_t saved_step_ = -1;  // of the newest checkpoint
};

}  // namespace stagegpt
