// Owns the step: fetch, forward, backward (once a micro-step), synchronise, clip, update.
#pragma once

#include <cstdint>
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
  std::int64_t data_position() const { return batches_.position(); }
  // Goes on as if so many steps had been done; weights and moments are loaded into model and optimizer.
  void restore(std::int64_t steps_done, std::int64_t data_position);
  const AdamW& optimizer() const { return optimizer_; }

 private:
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
};

// Mean loss in nats over the text's first windows, at most `max_windows` of them, `batch_size` at a time.
double evaluate(Backend& backend, const Gpt2& model, const DataLoader& data, std::int64_t batch_size,
                std::int64_t max_windows);

}  // namespace stagegpt
