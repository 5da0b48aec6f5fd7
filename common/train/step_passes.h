// This rank's forward and backward passes of a training step. A step has grad_accumulation micro-steps, each
// with a batch of batch_size sequences over all ranks. A rank's share of a batch is one sub-batch (several
// with
// --reproducible), and a pass is the forward and backward of one sub-batch (step_division.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "common/comm/gradient_sync.h"
#include "common/comm/gradient_tree.h"
#include "common/data/batch_stream.h"
#include "common/parallel/grid.h"
#include "common/parallel/pass_schedule.h"
#include "common/train/layer_watch.h"
#include "common/train/pass_inputs.h"
#include "common/train/phase_clock.h"
#include "common/train/trainer_config.h"

namespace stagegpt {

// Whether passes are repeated, as Backend::repeat() says: all but those that send gradients.
bool repeats_passes(const Backend& backend, const GradientSync& sync, const TrainerConfig& config);

class StepPasses final : private PassWork {
 public:
  // The arguments are as for Trainer, and outlive this; the clock times the phases.
  StepPasses(Backend& backend, const Grid& grid, GradientSync& sync, LanguageModel& model,
             const DataLoader& data, const TrainerConfig& config, PhaseClock& clock);
  StepPasses(const StepPasses&) = delete;
  StepPasses& operator=(const StepPasses&) = delete;

  // All passes of a step. Afterwards the parameters have the sum of their gradients. `watch` is called for
  // the ops of the first forward pass; `layers`, which may be null, for those of all.
  void run(std::int64_t step, const Tape::OpWatch& watch, LayerWatch* layers);
  // f32 (passes); zeros on a stage of a pipeline that is not the last.
  const Tensor& losses() const { return losses_; }
  BatchStream& batches() { return batches_; }

 private:
  void fetch(std::int64_t pass) override;
  void begin(std::int64_t pass) override;
  Var forward(Tape& tape, std::int64_t pass, Var before) override;
  void backward(Tape& tape, std::int64_t pass, Var out, Tensor dout) override;
  void end(std::int64_t pass) override;
  void compute(std::int64_t pass, const std::function<void()>& both) override;
  void exchanged() override { clock_.end(&PhaseSeconds::communication); }

  void allocate();
  const StepDivision& division() const { return batches_.division(); }
  PassInputs& inputs(std::int64_t pass) { return inputs_[static_cast<std::size_t>(pass) % inputs_.size()]; }
  // Whether the pass overwrites the gradients; others add to them.
  bool is_first(std::int64_t pass) const { return pass % division().micro_steps == 0; }
  // Whether it completes the sum over micro-steps.
  bool is_last(std::int64_t pass) const { return is_first(pass + 1); }
  // Whether gradients are sent in its backward, as soon as they are ready.
  bool sends(std::int64_t pass) const { return is_last(pass) && !tree_ && sync_.traits().communicates; }
  void send_when_ready(Tape& tape);
  bool is_watched(std::int64_t pass) const { return layers_ != nullptr || (pass == 0 && watch_); }
  void watch(Tape& tape, std::int64_t pass) const;
  RankGroup& group() const { return grid_.world().group(); }

  Backend& backend_;
  Grid grid_;
  GradientSync& sync_;
  LanguageModel& model_;
  BatchStream batches_;
  TrainerConfig config_;
  PhaseClock& clock_;
  std::unique_ptr<PassSchedule> schedule_;
  std::optional<GradientTree> tree_;  // only if config.reproducible
  // From the first step on:
  std::vector<PassInputs> inputs_;  // of the passes in flight
  Tensor loss_;                     // (1), of the newest pass; undefined on a stage that has none
  Tensor losses_;                   // (passes)
  Recording first_pass_, other_pass_;
  bool repeated_ = false;  // the pass is recorded, or repeats one that was
  // What a step needs, until it ends:
  std::int64_t step_ = 0;
  Tape::OpWatch watch_;
  LayerWatch* layers_ = nullptr;
};

}  // namespace stagegpt
