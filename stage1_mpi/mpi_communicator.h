// The communicator over MPI. Tensors must be in memory that the MPI library can access: host memory or, with
// a CUDA-aware library, GPU memory.
#pragma once

#include <memory>
#include <string_view>

#include "common/backend/backend.h"
#include "common/comm/slow_network.h"
#include "stage1_mpi/mpi_group.h"

namespace stagegpt {

// The implementation of the collectives: the ring of ring.h, or the MPI library's own algorithms.
enum class CommAlgorithm : std::uint8_t { ring, mpi };

// Collective call. `backend` must be the backend of the tensors; it also does the additions of the ring.
// Group and backend are borrowed. Messages are delayed as by `network`.
std::unique_ptr<Communicator> make_mpi_communicator(MpiGroup& group, Backend& backend,
                                                    CommAlgorithm algorithm, const Network& network = {});

}  // namespace stagegpt
