// --transport nccl: NVIDIA's collectives from GPU to GPU over NVLink, PCIe or the network. They run on their
// own stream, concurrently with backward. MPI starts the processes and sends the short messages between
// ranks.
#pragma once

#include <memory>
#include <string>

#include "common/comm/communicator.h"
#include "stage1_mpi/mpi_group.h"
#include "stage2_cuda/cuda_backend.h"

namespace stagegpt::gpu {

// Why NCCL is not available in this program; empty if it is.
std::string nccl_unavailable_reason();

// Collective call. Group and backend are borrowed.
std::unique_ptr<Communicator> make_nccl_communicator(MpiGroup& group, CudaBackend& device);

}  // namespace stagegpt::gpu
