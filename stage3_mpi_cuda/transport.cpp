#include "stage3_mpi_cuda/transport.h"

#include <mpi.h>
#if defined(OPEN_MPI)
#include <mpi-ext.h>
#endif

#include <algorithm>

#include "stage3_mpi_cuda/host_staged_communicator.h"
#include "stage3_mpi_cuda/nccl_communicator.h"

namespace stagegpt::gpu {
namespace {

// Whether the MPI library says that it reads and writes memory of GPUs. Those that do not say are taken not
// to.
bool mpi_is_cuda_aware() {
#if defined(MPIX_CUDA_AWARE_SUPPORT)
  return MPIX_Query_cuda_support() != 0;
#else
  return false;
#endif
}

}  // namespace

const std::vector<std::string>& transport_names() {
  static const std::vector<std::string> names = {"nccl", "cuda-aware", "host"};
  return names;
}

const std::string& name_of(Transport transport) {
  return transport_names()[static_cast<std::size_t>(transport)];
}

std::string why_not(Transport transport, const TransportConditions& conditions) {
  if (transport == Transport::host) return "";
  if (!conditions.is_gpu) return "the emulated GPU has the host transport only";
  if (conditions.shares_gpu) return "ranks that share a GPU have the host transport only";
  if (transport == Transport::nccl) return why_no_nccl();
  if (conditions.algorithm == CommAlgorithm::mpi) {
    // Open MPI's MPI_Iallreduce and MPI_Ireduce_scatter_block add on the host, wherever the memory is.
    return "--comm-algorithm mpi adds on the host";
  }
  return mpi_is_cuda_aware() ? "" : "this MPI library does not say that it is CUDA-aware";
}

Transport choose_transport(const std::optional<std::string>& asked, const TransportConditions& conditions) {
  const std::vector<std::string>& names = transport_names();
  if (asked) {
    const auto transport = static_cast<Transport>(std::ranges::find(names, *asked) - names.begin());
    const std::string reason = why_not(transport, conditions);
    if (!reason.empty()) user_error("--transport: ", *asked, ": ", reason, "; host works everywhere");
    return transport;
  }
  for (const Transport transport : {Transport::nccl, Transport::cuda_aware}) {
    if (why_not(transport, conditions).empty()) return transport;
  }
  return Transport::host;
}

std::unique_ptr<Communicator> make_device_communicator(Transport transport, MpiGroup& group,
                                                       CudaBackend& device, CommAlgorithm algorithm) {
  switch (transport) {
    case Transport::nccl:
      return make_nccl_communicator(group, device);
    case Transport::cuda_aware:
      return make_mpi_communicator(group, device, algorithm);
    case Transport::host:
      break;
  }
  return make_host_staged_communicator(group, device, algorithm);
}

}  // namespace stagegpt::gpu
