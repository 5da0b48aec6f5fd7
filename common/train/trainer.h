// Owns the step: fetch, forward, backward (once a micro-step), synchronise, clip, update.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "common/comm/communicator.h"
#include "common/data/batch_stream.h"
#include "common/model/gpt2.h"
#include "common/optim/adamw.h"
#include "common/optim/lr_schedule.h"
#include "common/train/gradient_sync.h"

namespace stagegpt {

struct TrainerConfig {
  std::int64_t batch_size = 8;         // sequences in a micro-step, over all ranks
  std::int64_t grad_accumulation = 1;  // micro-steps in a step
  LrSchedule schedule;
  AdamWConfig adamw;
  std::uint64_t seed = 1337;
  // Waits for the device at the end of each phase, so that its time is the phase's own: for measurements.
  bool synchronize_phases = false;
  // Every step trains on the samples of the first one: a model that learns at all learns them by heart.
  bool overfit_batch = false;
};

// Seconds spent in each phase of a step.
struct PhaseSeconds {
  double data = 0, forward = 0, backward = 0, communication = 0, optimizer = 0;

  double total() const { return data + forward + backward + communication + optimizer; }
};

struct StepReport {
  std::int64_t step = 0;  // counts from 0
  double loss = 0;        // mean over the step's tokens, in nats, before the update
  double grad_norm = 0;   // of all gradients, before clipping; not finite when the update was skipped
  double learning_rate = 0;
  PhaseSeconds seconds;
  std::int64_t bytes_reduced = 0;  // given to gradient synchronisation by this rank

  bool skipped() const { return !std::isfinite(grad_norm); }
  bool finite() const { return std::isfinite(loss) && std::isfinite(grad_norm); }
};

struct DeviceBatch {
  Tensor ids, targets;  // i32 (B,T)
};

class Trainer {
 public:
  // Everything is borrowed and must outlive the trainer. Throws UserError when batch_size does not divide
  // among the ranks.
  Trainer(Backend& backend, Communicator& communicator, GradientSync& sync, Gpt2& model,
          const DataLoader& data, const TrainerConfig& config);

  // One optimizer step.
  StepReport step();
  std::int64_t steps_done() const { return step_; }
  // Samples that all ranks together have taken.
  std::int64_t data_position() const { return samples_; }
  // Goes on as if so many steps had been done; weights and moments are loaded into model and optimizer.
  void restore(std::int64_t steps_done, std::int64_t data_position);
  // What went wrong in the last step, whose loss or gradient is not finite: the first tensor of the forward
  // pass, which is run again, or else the first gradient, that holds infinity or NaN. "the output of …".
  std::string first_non_finite(const StepReport& report);
  const AdamW& optimizer() const { return optimizer_; }

 private:
  DeviceBatch next_batch();
  DropoutPosition dropout_position(std::int64_t step, std::int64_t micro) const;
  // Forward and backward of one micro-step of this rank; returns its mean loss (1).
  Tensor micro_step(std::int64_t micro, PhaseSeconds& seconds);
  double mean_over_ranks(const std::vector<Tensor>& losses);

  Backend& backend_;
  Communicator& communicator_;
  GradientSync& sync_;
  Gpt2& model_;
  BatchStream batches_;
  TrainerConfig config_;
  AdamW optimizer_;
  std::int64_t step_ = 0;
  std::int64_t samples_ = 0;
};

struct Evaluation {
  double loss = 0;      // mean, in nats per token
  double accuracy = 0;  // share of the tokens that the model takes for the most probable
};

// Over the text's first windows, at most `max_windows` of them, `batch_size` at a time.
Evaluation evaluate(Backend& backend, const Gpt2& model, const DataLoader& data, std::int64_t batch_size,
                    std::int64_t max_windows);

}  // namespace stagegpt
