// A run from its first step, or from a checkpoint, to its end: steps, validation, metrics, checkpoints.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/run_directory.h"
#include "common/data/corpus.h"
#include "common/logging/metrics_log.h"
#include "common/logging/progress.h"
#include "common/logging/step_metrics.h"
#include "common/logging/tensorboard_log.h"
#include "common/measure/peak.h"
#include "common/train/slow_ranks.h"
#include "common/train/trainer.h"
#include "common/train/validation.h"

namespace stagegpt {

// What to do about a step whose loss or gradient is not finite. Such a gradient changes nothing.
enum class NonFinite : std::uint8_t { stop, skip };

struct TrainingRunConfig {
  TrainerConfig trainer;
  std::int64_t last_step = 1;  // where to stop, at most trainer.schedule.steps
  std::int64_t eval_every = 100;
  std::optional<std::int64_t> eval_tokens;  // see validation_sample()
  std::int64_t checkpoint_every = 1000;
  std::int64_t sample_every = 0;  // 0: never
  std::int64_t trace_steps = 0;   // of those that run() does, the first ones whose tensors are kept
  KeepRule keep;
  NonFinite non_finite = NonFinite::stop;
  std::function<std::string()> sample;  // a text by the model as it is
  std::optional<Peak> peak;             // of this rank, for MFU; measured where there is none
};

// What is validated between the steps of such a run, of a validation part of so many tokens.
WindowSample validation_sample(std::int64_t tokens, std::int64_t seq_len, const TrainingRunConfig& config);

struct TrainingResult {
  std::int64_t steps = 0;            // done, also before it was resumed
  std::optional<double> train_loss;  // of the last step; nothing where none was left to do
  // Over all of the validation part. Nothing where there is none, or a signal has interrupted the run.
  std::optional<ValidationResult> validation;
  std::optional<double> tokens_per_second;
  double seconds = 0;
  bool interrupted = false;  // by a signal, after a checkpoint: before last_step, or in the last validation
};

class TrainingRun {
 public:
  // All is borrowed. The model's weights are where the run begins. All ranks make the same calls; what one
  // throws, all throw.
  TrainingRun(Backend& backend, Communicator& communicator, GradientSync& sync, Gpt2& model,
              const Corpus& corpus, const TrainingRunConfig& config);

  // Goes on where a checkpoint was made, whose weights the model has already; rank 0 reads it. Throws
  // UserError when it does not fit the model, the data or the seed.
  void resume(const std::filesystem::path& checkpoint);

  // What is left to do before the first step. Throws Stopped when a signal has come meanwhile (see
  // stop_signals.h): nothing has been written yet.
  void prepare();

  // Ends at last_step, or after the step in which a signal came, always with a checkpoint; at last_step with
  // a validation of all tokens too. Where no step is left to do, that is all, and nothing is written. A
  // checkpoint that cannot be written is reported, and tried again at the next occasion; at the end it
  // throws. Throws std::runtime_error when a loss or gradient is not finite, and that is to stop it. Rank 0
  // alone has a directory, and keeps the run; on the others it is null.
  TrainingResult run(RunDirectory* directory);

 private:
  // Opens what rank 0 tells of the run; its files only where steps are left to do.
  void open_logs();
  // Those files: metrics and TensorBoard's. Of steps behind those that are done, nothing stays in them.
  void open_files();
  // Whether a signal has come, to any rank.
  bool stop_requested() const;
  // That of all ranks, for MFU.
  void find_peak();
  // One step, with what follows on it: validation, metrics, sample.
  void step(TrainingResult& result);
  // Trains for one step, with a trace where that is wanted.
  StepReport train();
  void log(const StepReport& report);
  // Of the sample, after a step.
  void validate();
  // Of all tokens, at the end of a call that did `own_steps` of the steps.
  void validate_all(TrainingResult& result, bool own_steps);
  std::optional<ValidationResult> validate(const WindowSample& windows);
  // Adds what came of it to the metrics of the last step, unless they have it.
  void log_all(const ValidationResult& validation);
  void sample();
  // A line for whoever watches.
  void note(const std::string& text);
  TrainerState read_state(const std::filesystem::path& checkpoint) const;
  bool trained_on_these_tokens(const TrainerState& state) const;
  bool due(std::int64_t every) const;
  // Throws, or tells of it.
  void on_non_finite(const StepReport& report);
  StepMetrics metrics_of(const StepReport& report) const;
  std::optional<double> validation_loss() const;
  // Both return the line that tells of it.
  std::string save();
  std::string write(const MomentValues& moments);
  // save() that returns a warning where the run can go on without: no room, no memory.
  std::string try_to_save();
  std::string not_saved(const std::string& why) const;
  // After a step that changed nothing: as if it had not been. Whether there is a checkpoint of that now.
  bool save_before(std::int64_t step);
  TrainerState state() const;

  Backend& backend_;
  Communicator& communicator_;
  RankGroup& group_;
  Gpt2& model_;
  const Tokenizer& tokenizer_;
  RunDirectory* directory_ = nullptr;
  TrainingRunConfig config_;
  DataLoader data_;
  TokenIdentity train_identity_;
  std::optional<Validation> validation_;  // where there is a validation part
  WindowSample sample_;                   // of it, between steps
  Trainer trainer_;
  // On rank 0.
  std::optional<Progress> progress_;
  std::optional<MetricsLog> metrics_;
  std::optional<TensorBoardLog> tensorboard_;
  SlowRanks slow_ranks_;

  std::optional<ValidationResult> validated_;  // the sample, after the last step
  std::int64_t traced_until_ = 0;              // the step behind the last that is traced
  double peak_flops_per_second_ = 0;
  std::int64_t saved_step_ = -1;
  std::int64_t non_finite_steps_ = 0, skipped_steps_ = 0;  // in this process
};

}  // namespace stagegpt
