// The measurements of one run of a stage, from its metrics.jsonl.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/measure/machine_load.h"

namespace stagegpt::compare {

struct Spread {
  double median = 0, min = 0, max = 0;
  bool operator==(const Spread&) const = default;
};

// In the order of a step.
inline constexpr std::array<const char*, 5> kPhases = {"data", "forward", "backward", "communication",
                                                       "optimizer"};
inline constexpr std::size_t kCommunication = 3;
using PhaseMs = std::array<double, kPhases.size()>;

struct StepRecord {
  double loss = 0, grad_norm = 0;  // NaN if they were not finite
  double seconds = 0;
  PhaseMs ms = {};
};

struct Trial {
  std::vector<StepRecord> steps;
  double tokens_per_step = 0;
  std::int64_t peak_memory_bytes = 0;
  std::string weights_xxh3_128;          // of the final checkpoint's model.safetensors
  std::optional<MachineLoad> load = {};  // from the start of the program to its end
};

// Parses a metrics.jsonl. Throws std::runtime_error for an invalid line.
Trial parse_metrics(std::string_view text);

// The speed of a trial, without warm-up steps.
struct Timing {
  double step_ms = 0;  // median
  double tokens_per_second = 0;
  PhaseMs ms = {};                 // medians
  double communication_share = 0;  // share of communication in the sum of the phases' medians
};
// NaN where `warmup` leaves no step.
Timing timing(const Trial& trial, std::int64_t warmup);

}  // namespace stagegpt::compare
