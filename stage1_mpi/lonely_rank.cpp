#include "stage1_mpi/lonely_rank.h"

#include <cstdlib>
#include <iostream>
#include <string_view>

#include "common/comm/agreement.h"

namespace stagegpt {
namespace {

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Whether mpirun has started this process as the only rank. Open MPI sets the first variable, MPICH and its
// descendants the second one, which Slurm also sets, to its number of tasks.
bool meant_to_be_alone() { return !variable("OMPI_COMM_WORLD_SIZE").empty() || variable("PMI_SIZE") == "1"; }

}  // namespace

void refuse_lonely_rank(const RankGroup& group) {
  const std::string_view tasks = variable("SLURM_NTASKS");
  if (group.size() > 1 || tasks.empty() || tasks == "1" || meant_to_be_alone()) return;
  const std::string_view task = variable("SLURM_PROCID");
  if (!task.empty() && task != "0") std::cerr.rdbuf(nullptr);
  throw AgreedUserError(
      concat("Slurm has ", tasks,
             " tasks (SLURM_NTASKS), but this rank is alone in its MPI job: start with mpirun, as "
             "scripts/slurm/*.sbatch do, or with srun --mpi=pmix if MPI and Slurm are built with "
             "the same PMIx; for a single rank use mpirun -np 1"));
}

}  // namespace stagegpt
