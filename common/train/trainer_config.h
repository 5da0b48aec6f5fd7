// How a model is trained, step by step.
#pragma once

#include <cstdint>

#include "common/data/step_division.h"
#include "common/model/language_model.h"
#include "common/optim/adamw.h"
#include "common/optim/lr_schedule.h"
#include "common/profile/timeline.h"

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

}  // namespace stagegpt
