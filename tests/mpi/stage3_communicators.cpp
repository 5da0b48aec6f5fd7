#include "stage2_cuda/emulation/settings.h"
#include "stage3_mpi_cuda/host_staged_communicator.h"
#include "tests/support/communicators.h"
#include "tests/support/mpi_ranks.h"

namespace stagegpt::test {
namespace {

// Four ranks have two nodes; fewer have one.
int nodes_of_two(CommAlgorithm algorithm) {
  return algorithm == CommAlgorithm::hierarchical ? (ranks().size() == 4 ? 2 : ranks().size()) : 0;
}

// A communicator of device tensors. With `late`, streams delay their work until the host waits.
CommunicatorUnderTest by(std::string name, CommAlgorithm algorithm, bool late) {
  const auto make_backend = [=]() -> std::unique_ptr<Backend> {
    gpu::emulation::set_stream_time(late ? gpu::emulation::StreamTime::late
                                         : gpu::emulation::StreamTime::at_once);
    gpu::open_device(0);
    return gpu::make_cuda_backend({});
  };
  return {std::move(name), make_backend, [=](Backend& backend) {
            return gpu::make_host_staged_communicator(
                ranks(), dynamic_cast<gpu::CudaBackend&>(backend),
                {.algorithm = algorithm, .ranks_per_node = nodes_of_two(algorithm)});
          }};
}

}  // namespace

const std::vector<CommunicatorUnderTest>& communicators_under_test() {
  static const std::vector<CommunicatorUnderTest> all = {
      by("host_ring", CommAlgorithm::ring, /*late=*/false),
      by("host_mpi", CommAlgorithm::mpi, /*late=*/false),
      by("host_ring_late", CommAlgorithm::ring, /*late=*/true),
      by("host_mpi_late", CommAlgorithm::mpi, /*late=*/true),
      by("host_hierarchical_late", CommAlgorithm::hierarchical, /*late=*/true)};
  return all;
}

}  // namespace stagegpt::test
