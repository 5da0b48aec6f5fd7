// What a training run is asked for, and what it returns.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "common/checkpoint/run_directory.h"
#include "common/checkpoint/trainer_state.h"
#include "common/profile/peak.h"
#include "common/profile/profile.h"
#include "common/train/choices.h"
#include "common/train/evaluate.h"
#include "common/train/non_finite.h"
#include "common/train/trainer_config.h"

namespace stagegpt {

struct TrainingRunConfig {
  TrainerConfig trainer;
  std::int64_t last_step = 1;     // after which to stop, at most trainer.schedule.steps
  std::int64_t eval_every = 100;  // 0: no validation
  std::int64_t eval_tokens = 0;   // of each validation; see validation_sample()
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

// The windows of each validation of such a run, of a validation part of `tokens` tokens. None without
// validation.
WindowSample validation_sample(std::int64_t tokens, std::int64_t seq_len, const TrainingRunConfig& config);

inline constexpr std::int64_t kMostEvalTokens = 1'000'000'000'000'000;

// The number of tokens in a validation if --eval-tokens is not given. As many windows as let all validations
// of a schedule take a tenth of the training's passes, but at least 64: a window takes one pass in a
// validation and three in training. It depends on no machine and no text.
std::int64_t usual_eval_tokens(const TrainingRunConfig& config, std::int64_t seq_len);

// Of the passes of a call, in training and in the validations of `windows` windows that come with its steps,
// the share that is done: it began after `first` steps and has done `steps`.
double share_done(std::int64_t first, std::int64_t steps, const TrainingRunConfig& config,
                  std::int64_t windows);

struct TrainingResult {
  std::int64_t steps = 0;            // completed steps, including those before it was resumed
  std::optional<double> train_loss;  // of the last step; empty if run() did no step
  // With the last weights. Empty without one, or if a signal has ended it or the run.
  std::optional<ValidationResult> validation;
  WindowSample windows;  // of each validation
  // Answers to the task, with the last weights. Empty without one, or if a signal has ended them or the run.
  std::optional<ChoiceResult> task;
  // If it ended before last_step, for want of patience: the best validation.
  std::optional<BestValidation> best_validation;
  std::optional<double> tokens_per_second;
  double seconds = 0;                      // of this call
  std::optional<double> training_seconds;  // of all steps, also of earlier calls; empty if run() did no step
  double validation_seconds = 0;           // of all validations at steps, and of this call
  bool interrupted = false;                // by a signal, before last_step; a checkpoint was saved
};

}  // namespace stagegpt
