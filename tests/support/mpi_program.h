// Running the project's programs under mpirun.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "tests/support/program.h"

namespace stagegpt::test {

// Arguments of mpirun for `ranks` ranks, on however few cores, and the program's path: its own arguments
// follow.
std::vector<std::string> ranks_of(int ranks, const std::string& program);

// Runs mpirun with these arguments in `directory`, also as root, and waits for it.
ProgramResult run_mpi(const std::vector<std::string>& arguments, const std::filesystem::path& directory,
                      const RunOptions& options = {});

// The ranks whose working directory is `directory`, by rank; those that have ended do not count.
std::vector<pid_t> ranks_in(const std::filesystem::path& directory);
// Waits until none is left, for at most five seconds. Whether none is.
bool all_end(const std::filesystem::path& directory);

}  // namespace stagegpt::test
