// Times training steps, and compares them with a lower bound (gemm_bound.h).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "common/measure/machine_load.h"
#include "common/measure/step_times.h"
#include "common/profile/peak.h"
#include "common/profile/profile.h"
#include "common/train/trainer.h"
#include "tools/bench/gemm_bound.h"
#include "tools/bench/step_budget.h"

namespace stagegpt {

struct BenchConfig {
  std::int64_t steps = 10;        // timed
  std::int64_t warmup = 3;        // not timed
  std::int64_t profiled = 5;      // timed op by op, spread over the timed steps
  std::optional<Peak> peak = {};  // of this rank; measured if not given
  Profile* profile = nullptr;     // of timed steps
};

struct BenchReport {
  double first_loss = 0, first_grad_norm = 0;  // of the first step, from the initial weights
  double last_loss = 0, last_grad_norm = 0;    // of the last timed step: all timed steps have led to it
  Samples step_ms, products_ms, adamw_ms;      // of a step, and of the parts of its bound (GemmBound)
  Samples reduction_ms;                        // from the first reduction of gradients in a step to the last
  std::int64_t bytes_reduced = 0;              // of this rank's gradients in those, in a step
  PhaseSeconds phases;                         // median of each
  std::vector<Profiler::Entry> kernels;        // median of the profiled steps for each op, longest first
  Peak peak;                                   // of this rank
  std::size_t peak_bytes = 0;                  // peak memory during a step
  std::vector<std::size_t> rank_peak_bytes;    // of each rank, after take_most_of_ranks()
  std::optional<MachineLoad> load;             // of the busiest host
  std::optional<DeviceWork> device_work;       // of this rank, in the last timed step
  // The rates of this rank, measured after the steps: multiply-adds on registers alone, and bytes read from
  // memory. For backends that know the first (Backend::multiply_add_rate).
  std::optional<PeakRates> machine;

  double gemm_bound_ms() const { return products_ms.median() + adamw_ms.median(); }
  // The bound divided by the median time of a step, at most about 1.
  double efficiency() const { return gemm_bound_ms() / step_ms.median(); }
};

// Replaces the bound and the peak memory by those of the rank that has most. A collective call.
void take_most_of_ranks(RankGroup& group, BenchReport& report);

// Called after each of `total` steps.
using BenchProgress = std::function<void(std::int64_t done, std::int64_t total)>;

// `trainer` trains `model`, in steps of `size`. Steps, bounds and profiled steps alternate, so that all are
// measured under the same conditions. The model is not usable afterwards.
BenchReport bench(Backend& backend, Trainer& trainer, const LanguageModel& model, StepSize size,
                  const BenchConfig& config, const BenchProgress& progress);

}  // namespace stagegpt
