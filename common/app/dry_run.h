// --dry-run: what a run would need.
#pragma once

#include "common/app/memory_check.h"
#include "common/comm/rank_group.h"

namespace stagegpt {

// Prints parameters, FLOPs, the time that they take at least at a peak of `flops_per_second` of all ranks,
// the memory of each rank by kind, and whether it is available, on standard output, as a table or as JSON.
// All ranks call it: what is available is that of the rank that has least.
void print_plan(const TrainingMemory& training, RankGroup& group, double flops_per_second, bool json);

}  // namespace stagegpt
