#include "common/app/started_once.h"

#include <cstdlib>
#include <string_view>

#include "common/base/error.h"

namespace stagegpt {

void require_started_once() {
  // Set by Open MPI; by MPICH and its descendants, and Slurm.
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    const char* size = std::getenv(variable);
    if (size == nullptr || std::string_view(size) == "1") continue;
    user_error("expected to be started once, without mpirun: by ", variable, " there are ", size,
               " processes, which would all write the same files");
  }
}

}  // namespace stagegpt
