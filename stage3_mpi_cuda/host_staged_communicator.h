// --transport host: a device's tensors go by way of the host, in memory that is pinned. This works with every
// MPI library and every GPU.
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

// A collective call. Both are borrowed.
std::unique_ptr<Communicator> make_host_staged_communicator(MpiGroup& group, CudaBackend& device,
                                                            CommAlgorithm algorithm);

}  // namespace stagegpt::gpu
