// What a training step reports.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "common/comm/gradient_sync.h"
#include "common/data/step_division.h"
#include "common/parallel/grid.h"
#include "common/train/phase_clock.h"

namespace stagegpt {

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

// Gathers the ranks' times and the losses of their passes, of which `losses` are this rank's, into the
// report. A collective call.
void gather_report(const Grid& grid, const StepDivision& division, std::span<const float> losses,
                   StepReport& report);

}  // namespace stagegpt
