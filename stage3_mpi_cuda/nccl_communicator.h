// --transport nccl: NVIDIA's collectives, from GPU to GPU over NVLink, PCIe or the network, on a stream of
// their own beside that of backward. MPI starts them, and carries what ranks say to each other.
#pragma once

#include <memory>
#include <string>

#include "common/comm/communicator.h"
#include "stage1_mpi/mpi_group.h"
#include "stage2_cuda/cuda_backend.h"

namespace stagegpt::gpu {

// Why this program has no NCCL; empty when it has.
std::string why_no_nccl();

// A collective call. Both are borrowed.
std::unique_ptr<Communicator> make_nccl_communicator(MpiGroup& group, CudaBackend& device);

}  // namespace stagegpt::gpu
