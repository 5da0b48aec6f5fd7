// Timing training steps.
#pragma once

#include <cstdint>
#include <vector>

#include "common/backend/profiler.h"
#include "common/train/trainer.h"

namespace stagegpt {

struct BenchConfig {
  std::int64_t steps = 10;    // timed
  std::int64_t warmup = 3;    // not timed
  std::int64_t profiled = 3;  // timed op by op, after the others
};

struct BenchReport {
  std::vector<double> step_ms;           // sorted
  PhaseSeconds phases;                   // mean of a step
  std::vector<Profiler::Entry> kernels;  // mean of a profiled step, longest first

  double median_ms() const;
};

BenchReport bench(Backend& backend, Trainer& trainer, const BenchConfig& config);

}  // namespace stagegpt
