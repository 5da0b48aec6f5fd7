// One step of each contestant, drawn on a clock that starts at 0 (step_timeline.h).
#pragma once

#include <string>

#include "tools/compare/comparison.h"
#include "tools/compare/table.h"

namespace stagegpt::compare {

// The section of the page: a figure for each contestant, and the table. Empty if nothing was recorded.
std::string timelines(const Comparison& comparison);

// Phases, waiting and messages of each rank, in ms and as shares of the step.
Table timeline_table(const Comparison& comparison);

}  // namespace stagegpt::compare
