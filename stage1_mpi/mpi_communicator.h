// Tensors between MPI ranks, in memory that the MPI library reaches: the host's or, if it is built for that,
// a GPU's.
#pragma once

#include <memory>
#include <string_view>

#include "common/backend/backend.h"
#include "common/comm/communicator.h"
#include "stage1_mpi/mpi_group.h"

namespace stagegpt {

// Who carries out the collectives: the ring of ring.h, or the MPI library by algorithms of its own.
enum class CommAlgorithm : std::uint8_t { ring, mpi };

// A collective call. The backend is the tensors' own, and adds what a ring receives.
std::unique_ptr<Communicator> make_mpi_communicator(MpiGroup& group, Backend& backend,
                                                    CommAlgorithm algorithm);

}  // namespace stagegpt
