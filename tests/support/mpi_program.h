// Runs the project's programs under mpirun.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "tests/support/program.h"

namespace stagegpt::test {

// Arguments of mpirun for `ranks` ranks on any number of cores, followed by the program's path.
std::vector<std::string> ranks_of(int ranks, const std::string& program);

// Runs mpirun with these arguments in `directory`, and waits for it. Also works as root.
ProgramResult run_mpi(const std::vector<std::string>& arguments, const std::filesystem::path& directory,
                      const RunOptions& options = {});

// The processes whose working directory is `directory`, by rank, without those that have ended.
std::vector<pid_t> ranks_in(const std::filesystem::path& directory);
// Waits until all of them have ended, for at most five seconds. Returns whether they have.
bool all_end(const std::filesystem::path& directory);

}  // namespace stagegpt::test
