// Timing training steps, next to the least that they could take.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "common/measure/gemm_bound.h"
#include "common/measure/machine_load.h"
#include "common/measure/peak.h"
#include "common/measure/step_times.h"
#include "common/train/trainer.h"

namespace stagegpt {

struct BenchConfig {
  std::int64_t steps = 10;        // timed
  std::int64_t warmup = 3;        // not timed
  std::int64_t profiled = 5;      // timed op by op, spread over the others
  std::optional<Peak> peak = {};  // of this rank; measured where there is none
};

struct BenchReport {
  double first_loss = 0, first_grad_norm = 0;  // of the first step, from the initial weights
  Samples step_ms, products_ms, adamw_ms;      // of a step, and of its bound (GemmBound)
  PhaseSeconds phases;                         // median of each
  std::vector<Profiler::Entry> kernels;        // of each op the median of the profiled steps, longest first
  Peak peak;                                   // of this rank
  std::size_t peak_bytes = 0;                  // most memory in use during a step
  std::optional<MachineLoad> load;             // of the host that was the busiest

  double gemm_bound_ms() const { return products_ms.median() + adamw_ms.median(); }
  // How near a step comes to its bound.
  double efficiency() const { return gemm_bound_ms() / step_ms.median(); }
};

// Called after each of `total` steps.
using BenchProgress = std::function<void(std::int64_t done, std::int64_t total)>;

// `trainer` trains `model`, in steps of `size`. Step, bound and profiled steps take turns, so that all meet
// the same machine. Afterwards the model has learnt nothing of use.
BenchReport bench(Backend& backend, Trainer& trainer, const Gpt2& model, StepSize size,
                  const BenchConfig& config, const BenchProgress& progress);

}  // namespace stagegpt
