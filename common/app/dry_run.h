// --dry-run: what a run would need.
#pragma once

#include <functional>

#include "common/app/memory_check.h"
#include "common/comm/rank_group.h"

namespace stagegpt {

// Prints parameters, FLOPs, the memory of each rank by kind, whether it is available, and the time that the
// FLOPs take at least, on standard output, as a table or as JSON. All ranks call it: what is available is
// that of the rank that has least. peak() returns the FLOP/s of all ranks together, or 0 if they are not
// known; it is called where there is memory to measure them. With frozen parameters there is no time: they
// need fewer FLOPs.
void print_plan(const TrainingMemory& training, RankGroup& group, const std::function<double()>& peak,
                bool json);

}  // namespace stagegpt
