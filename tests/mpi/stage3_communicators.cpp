#include "stage2_cuda/emulation/settings.h"
#include "stage3_mpi_cuda/host_staged_communicator.h"
#include "tests/support/communicators.h"
#include "tests/support/mpi_ranks.h"

namespace stagegpt::test {
namespace {

// A communicator of device tensors. With `late`, streams delay their work until the host waits.
CommunicatorUnderTest by(std::string name, CommAlgorithm algorithm, bool late) {
  const auto make_backend = [=]() -> std::unique_ptr<Backend> {
    gpu::emulation::set_stream_time(late ? gpu::emulation::StreamTime::late
                                         : gpu::emulation::StreamTime::at_once);
    gpu::open_device(0);
    return gpu::make_cuda_backend({});
  };
  return {std::move(name), make_backend, [=](Backend& backend) {
            return gpu::make_host_staged_communicator(ranks(), dynamic_cast<gpu::CudaBackend&>(backend),
                                                      algorithm);
          }};
}

}  // namespace

const std::vector<CommunicatorUnderTest>& communicators_under_test() {
  static const std::vector<CommunicatorUnderTest> all = {
      by("host_ring", CommAlgorithm::ring, /*late=*/false),
      by("host_mpi", CommAlgorithm::mpi, /*late=*/false),
      by("host_ring_late", CommAlgorithm::ring, /*late=*/true),
      by("host_mpi_late", CommAlgorithm::mpi, /*late=*/true)};
  return all;
}

}  // namespace stagegpt::test
