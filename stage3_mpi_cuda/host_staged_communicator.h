// --transport host: tensors in device memory are copied through pinned host memory. This works with any MPI
// library and any GPU.
//
//   compute stream   … backward ──┬───────────────────────────────────────────
//   copy stream                   └► device → host ┐             ┌► host → device
//   host                                           └► stage 1's ─┘
//                                                     communicator
#pragma once

#include <memory>

#include "stage1_mpi/mpi_communicator.h"
#include "stage2_cuda/cuda_backend.h"

namespace stagegpt::gpu {

// Collective call. Group and backend are borrowed. Stage 1's communicator is that of make_mpi_communicator().
std::unique_ptr<Communicator> make_host_staged_communicator(MpiGroup& group, CudaBackend& device,
                                                            CommAlgorithm algorithm,
                                                            const Network& network = {});

}  // namespace stagegpt::gpu
