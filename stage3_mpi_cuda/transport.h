// Transports: how tensors in device memory are sent between ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "stage1_mpi/mpi_communicator.h"
#include "stage2_cuda/cuda_backend.h"

namespace stagegpt::gpu {

enum class Transport : std::uint8_t { nccl, cuda_aware, host };

// In order, the fastest first.
const std::vector<std::string>& transport_names();
const std::string& name_of(Transport transport);

// The conditions that determine which transports are available.
struct TransportConditions {
  bool is_gpu = true;       // false: emulated
  bool shares_gpu = false;  // with other ranks
  CommAlgorithm algorithm = CommAlgorithm::ring;
};

// The requested transport or, if none is requested, the fastest that is available. Throws UserError if the
// requested one is not available.
Transport choose_transport(const std::optional<std::string>& requested,
                           const TransportConditions& conditions);

// Collective call. Group and backend are borrowed. `algorithm` and `network` are used by transports over MPI,
// as by make_mpi_communicator().
std::unique_ptr<Communicator> make_device_communicator(Transport transport, MpiGroup& group,
                                                       CudaBackend& device, CommAlgorithm algorithm,
                                                       const Network& network);

}  // namespace stagegpt::gpu
