// The communicator over MPI. Tensors must be in memory that the MPI library can access: host memory or, with
// a CUDA-aware library, GPU memory.
#pragma once

#include <memory>
#include <string_view>

#include "common/backend/backend.h"
#include "common/comm/communicator.h"
#include "stage1_mpi/mpi_group.h"

namespace stagegpt {

// The implementation of the collectives: the ring of ring.h, the MPI library's own algorithms, or rings in
// two levels (hierarchical_communicator.h).
enum class CommAlgorithm : std::uint8_t { ring, mpi, hierarchical };

// All ranks at one level: `algorithm` is ring or mpi. Collective call. `backend` must be the backend of the
// tensors; it also does the additions of the ring. Group and backend are borrowed.
std::unique_ptr<Communicator> make_mpi_communicator(MpiGroup& group, Backend& backend,
                                                    CommAlgorithm algorithm);

}  // namespace stagegpt
