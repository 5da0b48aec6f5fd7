// The training step: fetch, forward and backward for each micro-step; synchronise, clip, update, share
// weights.
#pragma once

#include <cstdint>
#include <string>

#include "common/logging/step_report.h"
#include "common/parallel/grid_sync.h"
#include "common/train/step_passes.h"

namespace stagegpt {

class Trainer {
 public:
  // A batch is divided among the data ranks, whose gradients `sync` combines. The model is this rank's part
  // if there are several tensor ranks or stages. The micro-batches of a pipeline are the micro-steps. The
  // arguments must outlive the trainer. Throws UserError as divide_step() does, and if the backend records
  // work but no pass can be repeated.
  Trainer(Backend& backend, const Grid& grid, GradientSync& sync, LanguageModel& model,
          const DataLoader& data, const TrainerConfig& config);

  // One optimizer step. `watch` is called for the ops of the forward pass of this rank's first sub-batch.
  // `layers`, which may be null, measures the step.
  StepReport step(const Tape::OpWatch& watch = {}, LayerWatch* layers = nullptr);
  std::int64_t steps_done() const { return step_; }
  // Number of samples that all ranks together have consumed.
  std::int64_t data_position() const { return samples_; }
  // The updates that the moments have had: the steps that were not skipped.
  const UpdateCounts& updates() const { return updates_; }
  // Continues after `steps_done` steps. Weights and moments are restored separately.
  void restore(std::int64_t steps_done, std::int64_t data_position, const UpdateCounts& updates);
  const AdamW& optimizer() const { return optimizer_; }
  // Afterwards the model's Parameters::weights() are up to date on every rank. A collective call, needed
  // before they are read.
  void gather_weights() { sync_.gather_weights(model_.parameters()); }
  // For a last step whose loss or gradient is not finite: describes the first tensor with infinity or NaN
  // (non_finite.h).
  std::string first_non_finite(const StepReport& report);

 private:
  // Clips, and updates the weights.
  void update(double learning_rate, LayerWatch* layers);
  // Waits for the step's work, and reads its results.
  void read_results(StepReport& report);
  RankGroup& group() const { return grid_.world().group(); }
  // Enters a phase that only several ranks have.
  void enter(const char* phase) const {
    if (group().size() > 1) group().enter(phase);
  }

  Backend& backend_;
  Grid grid_;
  LanguageModel& model_;
  GridSync grid_sync_;
  GradientSync& sync_;
  std::uint64_t seed_;
  LrSchedule schedule_;
  PhaseClock clock_;
  StepPasses passes_;
  AdamW optimizer_;
  Recording recorded_update_;
  ParameterTable table_;  // of the whole model
  UpdateCounts updates_;
  std::int64_t step_ = 0;
  std::int64_t samples_ = 0;
};

}  // namespace stagegpt
