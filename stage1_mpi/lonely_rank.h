// Ranks that do not know of each other, because the launcher and the MPI library do not fit together.
#pragma once

#include "common/comm/rank_group.h"

namespace stagegpt {

// Throws AgreedUserError if Slurm has started several tasks and this rank is an MPI job of its own. It would
// train the whole model alone, in the run directory of the others. `mpirun -np 1` in a job of several tasks
// is allowed. Of tasks that are alone, only task 0 prints.
void refuse_lonely_rank(const RankGroup& group);

}  // namespace stagegpt
