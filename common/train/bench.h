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

// Floating-point operations of one training step over `tokens` tokens in sequences of T: 6N + 6LCT for each
// token, N the number of parameters, the second term causal attention (half of the T×T scores).
double step_flops(const Gpt2Config& config, std::int64_t parameters, std::int64_t tokens, std::int64_t T);

}  // namespace stagegpt
