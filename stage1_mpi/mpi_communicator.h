// Tensors between MPI ranks whose backend's memory is the host's.
#pragma once

#include <memory>
#include <string_view>

#include "common/backend/backend.h"
#include "common/comm/communicator.h"
#include "stage1_mpi/mpi_group.h"

namespace stagegpt {

// Who carries out the collectives: the ring of ring.h, or the MPI library by algorithms of its own.
enum class CommAlgorithm : std::uint8_t { ring, mpi };

// A collective call. The backend adds what a ring receives.
std::unique_ptr<Communicator> make_mpi_communicator(MpiGroup& group, Backend& backend,
                                                    CommAlgorithm algorithm);

}  // namespace stagegpt
