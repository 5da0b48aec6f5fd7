// For tests that mpirun runs, which are linked with mpi_main.cpp. All ranks run the same tests in the same
// order.
#pragma once

#include "stage1_mpi/mpi_group.h"

namespace stagegpt::test {

// The ranks that run this program.
MpiGroup& ranks();

}  // namespace stagegpt::test
