// The ways of a device's tensors between ranks.
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

// The fastest first.
const std::vector<std::string>& transport_names();
const std::string& name_of(Transport transport);

// What decides which of them there are.
struct TransportConditions {
  bool is_gpu = true;       // or emulated
  bool shares_gpu = false;  // with other ranks
  CommAlgorithm algorithm = CommAlgorithm::ring;
};

// Why a transport cannot be used; empty when it can.
std::string why_not(Transport transport, const TransportConditions& conditions);
// The one that is asked for, or else the fastest that can be used. Throws UserError where the first cannot.
Transport choose_transport(const std::optional<std::string>& asked, const TransportConditions& conditions);

// A collective call. Group and backend are borrowed; the algorithm is for transports that go through MPI.
std::unique_ptr<Communicator> make_device_communicator(Transport transport, MpiGroup& group,
                                                       CudaBackend& device, CommAlgorithm algorithm);

}  // namespace stagegpt::gpu
