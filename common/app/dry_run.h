// --dry-run: what a run would take.
#pragma once

#include "common/app/memory_check.h"
#include "common/comm/rank_group.h"

namespace stagegpt {

// Prints parameters, FLOPs, memory of each rank by kind, and whether there is as much, on standard output, as
// a table or as JSON. All ranks call it: what is available is told of the one with the least.
void print_plan(const TrainingMemory& training, RankGroup& group, bool json);

}  // namespace stagegpt
