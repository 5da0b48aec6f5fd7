// The training step: fetch, forward and backward for each micro-step; synchronise, clip, update, share
// weights.
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
#include "common/parallel/grid_sync.h"
#include "common/train/layer_watch.h"
#include "common/train/pass_inputs.h"
#include "common/train/phase_clock.h"
#include "common/train/piece_stream.h"

namespace stagegpt {

struct TrainerConfig {
  std::int64_t batch_size = 8;         // sequences per micro-step, over all ranks
  std::int64_t grad_accumulation = 1;  // micro-steps per optimizer step
  LrSchedule schedule;
  AdamWConfig adamw;
  std::uint64_t seed = 1337;
  // Every step trains on the samples of the first one, which a correct model overfits.
  bool overfit_batch = false;
  // The same bits on any number of ranks that divides `sub_batches`: each batch is divided into these, whose
  // gradients are added in a fixed order. The backend must be reproducible too: Backend::set_reproducible().
  bool reproducible = false;
  std::int64_t sub_batches = kReproducibleSubBatches;  // if reproducible; a power of two
  Recompute recompute = Recompute::none;               // changes no bits
  Timeline* timeline = nullptr;                        // records the background threads, if there is one

  // For divide_step().
  std::int64_t fixed_sub_batches() const { return reproducible ? sub_batches : 0; }
};

struct StepReport {
  std::int64_t step = 0;  // counts from 0
  double loss = 0;        // mean over the step's tokens, in nats, before the update
  double grad_norm = 0;   // of all gradients, before clipping; not finite if the update was skipped
  double learning_rate = 0;
  PhaseSeconds seconds;
  CommunicationReport communication;  // of this rank
  // Seconds of the fastest and of the slowest rank in this step, without communication.
  double least_rank_seconds = 0, most_rank_seconds = 0;
  int slowest_rank = 0;
  std::vector<double> rank_seconds = {};  // the same, by rank

  bool skipped() const { return !std::isfinite(grad_norm); }
  bool finite() const { return std::isfinite(loss) && std::isfinite(grad_norm); }
};

class Trainer {
 public:
  // A batch is divided among the data ranks, whose gradients `sync` combines. The model is this rank's part
  // if there are several tensor ranks or stages. The micro-batches of a pipeline are the micro-steps. The
  // arguments must outlive the trainer. Throws UserError as divide_step() does, and if the backend records
  // work but no pass can be repeated.
  Trainer(Backend& backend, const Grid& grid, GradientSync& sync, Gpt2& model, const DataLoader& data,
          const TrainerConfig& config);

  // One optimizer step. `watch` is called for the ops of the forward pass of this rank's first sub-batch.
  // `layers`, which may be null, measures the step.
  StepReport step(const Tape::OpWatch& watch = {}, LayerWatch* layers = nullptr);
  std::int64_t steps_done() const { return step_; }
  // Number of samples that all ranks together have consumed.
  std::int64_t data_position() const { return samples_; }
  // Continues after `steps_done` steps. Weights and moments are restored separately.
  void restore(std::int64_t steps_done, std::int64_t data_position);
  // For a last step whose loss or gradient is not finite: describes the first tensor with infinity or NaN, as
  // in non_finite.h. It repeats the forward pass, and checks the gradients if all tensors there are finite.
  std::string first_non_finite(const StepReport& report);
  const AdamW& optimizer() const { return optimizer_; }
  // Afterwards the model's Parameters::weights() are up to date on every rank. A collective call, needed
  // before they are read.
  void gather_weights() { sync_.gather_weights(model_.parameters()); }
  // What this rank has of a checkpoint: the weights, which are up to date after gather_weights(), and the
  // moments m and v. placed_in_parts() (whole_values.h) says where the parameters are in them.
  std::vector<OwnedArena> arenas() const;
  // The same of the gradients of the last step, reduced over all ranks and before clipping.
  OwnedArena gradients() const;
  // Copies moments of the whole model into this rank's parts. Each rank reads only these; if all data ranks
  // have the same, each reads a slice, and gets the others' from them. Overwrites the gradients with zeros. A
  // collective call; an error of `values` on one rank is thrown on all.
  void load_moments(const MomentValues& values);

 private:
  void load_moment(Moment moment, const ParameterValues& values);
  // What differs between the passes of a step: forward and backward of one sub-batch each.
  struct Pass {
    bool first = false;  // overwrites the gradients; the others add to them
    bool last = false;   // gradients are reduced over ranks as soon as they are ready
    Tape::OpWatch watch;
  };
  // All of this rank's passes. Their losses are in losses_.
  void run_passes(const Tape::OpWatch& watch, LayerWatch* layers);
  // Repeats what it did before, if the backend records work and no gradient is sent.
  void run_pass(const Pass& pass);
  // Forward and backward; `timed`: the clock has each of them.
  void compute_pass(const Pass& pass, bool timed);
  // The loss of a pass; on a stage of a pipeline, Gpt2::stage_output().
  Var forward(Tape& tape, const PassInputs& inputs, Var before) const;
  // All of this rank's passes on a stage of a pipeline.
  void run_pipeline(const Tape::OpWatch& watch, LayerWatch* layers);
  // In the backward of this tape, gradients are reduced over ranks as soon as they are ready.
  void reduce_when_ready(Tape& tape);
  // The derivative of the step's loss by that of a pass.
  double loss_scale() const;
  // Fetches the next sub-batch, and sends it to these inputs while the backend computes.
  void send_next_batch(PassInputs& inputs);
  // Allocates what the passes need, for so many that are computed at a time.
  void allocate_passes(std::int64_t in_flight);
  DropoutPosition dropout_position(std::int64_t step, const SubBatch& sub_batch) const;
  // Clips, and updates the weights.
  void update(double learning_rate, LayerWatch* layers);
  // Waits for the step's work, and reads its results.
  void read_results(StepReport& report);
  // Gathers losses and times of all ranks into the report.
  void gather_report(const std::vector<float>& losses, StepReport& report);
  RankGroup& group() const { return grid_.world().group(); }

  Backend& backend_;
  Grid grid_;
  Gpt2& model_;
  GridSync grid_sync_;
  GradientSync& sync_;
  StepDivision division_;
  BatchStream batches_;
  TrainerConfig config_;
  PhaseClock clock_;
  AdamW optimizer_;
  std::optional<GradientTree> tree_;  // only if config.reproducible
  // From the first step on:
  std::vector<PassInputs> inputs_;  // of the passes in flight: one, but for a stage of a pipeline
  Tensor loss_, losses_;            // of the last pass (1); of the step's passes (passes)
  Recording first_pass_, other_pass_, update_;
  std::int64_t step_ = 0;
  std::int64_t samples_ = 0;
};

}  // namespace stagegpt
