// What a training step reports.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "common/comm/gradient_sync.h"

namespace stagegpt {

// Seconds of each phase of a step. The time that a rank waits for others during backward is communication.
struct PhaseSeconds {
  double data = 0, forward = 0, backward = 0, communication = 0, optimizer = 0;

  double total() const { return data + forward + backward + communication + optimizer; }
};

using PhaseTime = double PhaseSeconds::*;
struct StepPhase {
  const char* name;
  PhaseTime seconds;
};
inline constexpr std::array kStepPhases =
    std::to_array<StepPhase>({{"data", &PhaseSeconds::data},
                              {"forward", &PhaseSeconds::forward},
                              {"backward", &PhaseSeconds::backward},
                              {"communication", &PhaseSeconds::communication},
                              {"optimizer", &PhaseSeconds::optimizer}});

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

}  // namespace stagegpt
