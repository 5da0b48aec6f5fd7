// Owns the step: fetch, forward, backward (once a micro-step), synchronise, clip, update, share.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "common/comm/communicator.h"
#include "common/comm/gradient_sync.h"
#include "common/comm/gradient_tree.h"
#include "common/data/batch_stream.h"
#include "common/model/gpt2.h"
#include "common/optim/adamw.h"
#include "common/optim/lr_schedule.h"
#include "common/train/divided_arenas.h"
#include "common/train/phase_clock.h"

namespace stagegpt {

struct TrainerConfig {
  std::int64_t batch_size = 8;         // sequences per micro-step, over all ranks
  std::int64_t grad_accumulation = 1;  // micro-steps per optimizer step
  LrSchedule schedule;
  AdamWConfig adamw;
  std::uint64_t seed = 1337;
  // Every step trains on the samples of the first one: a model that learns at all learns them by heart.
  bool overfit_batch = false;
  // The same bits at 1, 2, 4 and 8 ranks: each batch has kReproducibleSubBatches, whose gradients are added
  // in a fixed order. The backend must be so too: Backend::set_reproducible().
  bool reproducible = false;
};

struct StepReport {
  std::int64_t step = 0;  // counts from 0
  double loss = 0;        // mean over the step's tokens, in nats, before the update
  double grad_norm = 0;   // of all gradients, before clipping; not finite when the update was skipped
  double learning_rate = 0;
  PhaseSeconds seconds;
  CommunicationReport communication;  // of this rank
  // Of the quickest and the slowest rank: a step without communication, in which ranks wait for each other.
  double least_rank_seconds = 0, most_rank_seconds = 0;
  int slowest_rank = 0;
  std::vector<double> rank_seconds = {};  // of all, by rank

  bool skipped() const { return !std::isfinite(grad_norm); }
  bool finite() const { return std::isfinite(loss) && std::isfinite(grad_norm); }
};

struct DeviceBatch {
  Tensor ids, targets;  // i32 (B,T)
};

class Trainer {
 public:
  // Everything is borrowed and must outlive the trainer. Throws UserError as divide_step() does.
  Trainer(Backend& backend, Communicator& communicator, GradientSync& sync, Gpt2& model,
          const DataLoader& data, const TrainerConfig& config);

  // One optimizer step. `watch` sees the ops of the forward pass of this rank's first sub-batch.
  StepReport step(const Tape::OpWatch& watch = {});
  std::int64_t steps_done() const { return step_; }
  // Samples that all ranks together have taken.
  std::int64_t data_position() const { return samples_; }
  // Goes on as if so many steps had been done; weights and moments are loaded into model and optimizer.
  void restore(std::int64_t steps_done, std::int64_t data_position);
  // What went wrong in the last step, whose loss or gradient is not finite: the first tensor of the forward
  // pass, which is run again, or else the first gradient, that holds infinity or NaN. "the output of …".
  std::string first_non_finite(const StepReport& report);
  const AdamW& optimizer() const { return optimizer_; }
  // For rank 0 to read: the gradients of the last step, over all ranks and before clipping; the moments m and
  // v. Collective calls.
  DividedArenas gradients() const;
  DividedArenas moments() const;
  // Takes this rank's part of arenas that are the same on all ranks.
  void set_moment(Moment moment, const Tensor& arena);

 private:
  // Forward and backward of one sub-batch; returns its mean loss (1). The last one's gradients may be combined
  // with other ranks' as they come.
  Tensor run_sub_batch(const SubBatch& sub_batch, bool last, const Tape::OpWatch& watch);
  // Forward and backward of all of this rank's sub-batches. Returns their losses.
  std::vector<Tensor> run_sub_batches(const Tape::OpWatch& watch);
  DropoutPosition dropout_position(std::int64_t step, const SubBatch& sub_batch) const;
  // Fills in what the ranks tell each other about a step.
  void gather_report(const std::vector<Tensor>& losses, StepReport& report);

  Backend& backend_;
  Communicator& communicator_;
  GradientSync& sync_;
  Gpt2& model_;
  StepDivision division_;
  BatchStream batches_;
  TrainerConfig config_;
  PhaseClock clock_;
  AdamW optimizer_;
  std::optional<GradientTree> tree_;  // with reproducible
  std::int64_t step_ = 0;
  std::int64_t samples_ = 0;
};

}  // namespace stagegpt
