// Of a program that is built without NCCL.
#include "stage3_mpi_cuda/nccl_communicator.h"

namespace stagegpt::gpu {

std::string why_no_nccl() { return "this program was built without NCCL"; }

std::unique_ptr<Communicator> make_nccl_communicator(MpiGroup&, CudaBackend&) {
  check(false, why_no_nccl());
  return nullptr;
}

}  // namespace stagegpt::gpu
