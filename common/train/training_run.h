// A run from its first step, or from a checkpoint, to its end: steps, validation, metrics, checkpoints.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/run_directory.h"
#include "common/data/corpus.h"
#include "common/train/metrics_log.h"
#include "common/train/trainer.h"
#include "common/train/validation.h"

namespace stagegpt {

struct TrainingRunConfig {
  TrainerConfig trainer;
  std::int64_t last_step = 1;  // where to stop, at most trainer.schedule.steps
  std::int64_t eval_every = 100;
  std::int64_t checkpoint_every = 1000;
  KeepRule keep;
};

struct TrainingResult {
  std::int64_t steps = 0;                 // done, also before it was resumed
  std::optional<double> train_loss;       // of the last step; nothing where none was left to do
  std::optional<double> validation_loss;  // not taken where a signal has interrupted the run
  std::optional<double> bits_per_byte;
  std::optional<double> tokens_per_second;
  double seconds = 0;
  bool interrupted = false;  // by a signal, after a checkpoint
};

class TrainingRun {
 public:
  // All is borrowed. The model's weights are where the run begins.
  TrainingRun(Backend& backend, Communicator& communicator, GradientSync& sync, Gpt2& model,
              const Corpus& corpus, RunDirectory& directory, const TrainingRunConfig& config);

  // Goes on where a checkpoint was made, whose weights the model has already. Throws UserError when it does
  // not fit the model, the data or the seed.
  void resume(const std::filesystem::path& checkpoint);

  // Ends at last_step, or after the step in which a signal came (see stop_signals.h), always with a
  // checkpoint. One that cannot be written is reported, and tried again at the next occasion; at the end it
  // throws. Throws std::runtime_error when a loss or gradient is not finite.
  TrainingResult run();

 private:
  StepReport step();
  // Both return the line that tells of it.
  std::string save(std::optional<double> validation_loss);
  std::string try_to_save(std::optional<double> validation_loss);
  TrainerState state(std::optional<double> validation_loss) const;

  Backend& backend_;
  Gpt2& model_;
  const Tokenizer& tokenizer_;
  RunDirectory& directory_;
  TrainingRunConfig config_;
  DataLoader data_;
  std::string train_hash_;
  Validation validation_;
  Trainer trainer_;
  std::optional<MetricsLog> metrics_;
  std::int64_t saved_step_ = -1;
};

}  // namespace stagegpt
