// For tests that mpirun runs, linked with mpi_main.cpp. Every rank runs the same tests in the same order.
#pragma once

#include "stage1_mpi/mpi_group.h"

namespace stagegpt::test {

// The ranks that run this program.
MpiGroup& ranks();

}  // namespace stagegpt::test
