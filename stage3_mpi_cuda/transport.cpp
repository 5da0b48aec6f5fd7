#include "stage3_mpi_cuda/transport.h"

#include <mpi.h>
#if defined(OPEN_MPI)
#include <mpi-ext.h>
#endif

#include "common/app/command_line.h"
#include "stage3_mpi_cuda/host_staged_communicator.h"
#include "stage3_mpi_cuda/nccl_communicator.h"

namespace stagegpt::gpu {
namespace {

// Whether the MPI library reports that it is CUDA-aware. A library that does not report it is treated as not
// CUDA-aware.
bool mpi_is_cuda_aware() {
#if defined(MPIX_CUDA_AWARE_SUPPORT)
  return MPIX_Query_cuda_support() != 0;
#else
  return false;
#endif
}

// Why a transport cannot be used; empty if it can.
std::string unavailable_reason(Transport transport, const TransportConditions& conditions) {
  if (transport == Transport::host) return "";
  if (!conditions.is_gpu) return "emulated GPUs support only the host transport";
  if (conditions.shares_gpu) return "ranks that share a GPU can use only the host transport";
  if (transport == Transport::nccl) {
    if (conditions.algorithm != CommAlgorithm::ring)
      return "NCCL chooses its own algorithms, not that of --comm-algorithm";
    return nccl_unavailable_reason();
  }
  if (conditions.algorithm == CommAlgorithm::mpi) {
    // Open MPI's MPI_Iallreduce and MPI_Ireduce_scatter_block add on the host, even for GPU memory.
    return "--comm-algorithm mpi adds on the host";
  }
  return mpi_is_cuda_aware() ? "" : "this MPI library does not report that it is CUDA-aware";
}

}  // namespace

const std::vector<std::string>& transport_names() {
  static const std::vector<std::string> names = {"nccl", "cuda-aware", "host"};
  return names;
}

const std::string& name_of(Transport transport) {
  return transport_names()[static_cast<std::size_t>(transport)];
}

Transport choose_transport(const std::optional<std::string>& requested,
                           const TransportConditions& conditions) {
  if (requested) {
    const auto transport = chosen<Transport>(transport_names(), *requested);
    const std::string reason = unavailable_reason(transport, conditions);
    if (!reason.empty())
      user_error("--transport: ", *requested, ": ", reason, "; use host, which always works");
    return transport;
  }
  for (const Transport transport : {Transport::nccl, Transport::cuda_aware}) {
    if (unavailable_reason(transport, conditions).empty()) return transport;
  }
  return Transport::host;
}

std::unique_ptr<Communicator> make_device_communicator(Transport transport, MpiGroup& group,
                                                       CudaBackend& device, CommAlgorithm algorithm,
                                                       const Network& network) {
  switch (transport) {
    case Transport::nccl:
      return make_nccl_communicator(group, device);
    case Transport::cuda_aware:
      return make_mpi_communicator(group, device, algorithm, network);
    case Transport::host:
      break;
  }
  return make_host_staged_communicator(group, device, algorithm, network);
}

}  // namespace stagegpt::gpu
