// Replaces nccl_communicator.cpp in programs that are built without NCCL.
#include "stage3_mpi_cuda/nccl_communicator.h"

namespace stagegpt::gpu {

std::string nccl_unavailable_reason() { return "this program was built without NCCL"; }

std::unique_ptr<Communicator> make_nccl_communicator(MpiGroup&, CudaBackend&) {
  check(false, nccl_unavailable_reason());
  return nullptr;
}

}  // namespace stagegpt::gpu
