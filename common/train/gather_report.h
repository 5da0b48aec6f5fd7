// The report of a step, from all ranks.
#pragma once

#include <span>

#include "common/data/step_division.h"
#include "common/logging/step_report.h"
#include "common/parallel/grid.h"

namespace stagegpt {

// Gathers the ranks' times and the losses of their passes, of which `losses` are this rank's, into the
// report. A collective call.
void gather_report(const Grid& grid, const StepDivision& division, std::span<const float> losses,
                   StepReport& report);

}  // namespace stagegpt
