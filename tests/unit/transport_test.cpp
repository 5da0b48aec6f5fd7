// The transport of a device's tensors between ranks.
#include "stage3_mpi_cuda/transport.h"

#include <gtest/gtest.h>

#include "tests/support/refusal.h"

namespace stagegpt::test {
namespace {

using gpu::choose_transport;
using gpu::Transport;
using gpu::unavailable_reason;

constexpr gpu::TransportConditions kEmulated{.is_gpu = false}, kShared{.shares_gpu = true};

TEST(Transports, by_way_of_the_host_always_works) {
  for (const auto& conditions : {gpu::TransportConditions{}, kEmulated, kShared}) {
    EXPECT_EQ(unavailable_reason(Transport::host, conditions), "");
    EXPECT_EQ(choose_transport("host", conditions), Transport::host);
  }
}

TEST(Transports, an_emulated_gpu_and_a_shared_one_have_no_other) {
  for (const auto& [conditions, reason] : {std::pair(kEmulated, "emulated"), std::pair(kShared, "share")}) {
    for (const Transport transport : {Transport::nccl, Transport::cuda_aware}) {
      EXPECT_NE(unavailable_reason(transport, conditions).find(reason), std::string::npos);
    }
    EXPECT_EQ(choose_transport(std::nullopt, conditions), Transport::host);
    EXPECT_THROW(choose_transport("nccl", conditions), UserError);
    EXPECT_THROW(choose_transport("cuda-aware", conditions), UserError);
  }
}

// MPI's nonblocking reductions compute on the host, which cannot read a GPU's memory.
TEST(Transports, a_cuda_aware_mpi_reduces_by_the_ring_alone) {
  const gpu::TransportConditions conditions{.algorithm = CommAlgorithm::mpi};
  EXPECT_NE(unavailable_reason(Transport::cuda_aware, conditions).find("--comm-algorithm"),
            std::string::npos);
}

// NCCL has algorithms of its own.
TEST(Transports, over_mpi_alone_use_an_algorithm_that_was_asked_for) {
  const gpu::TransportConditions conditions{.algorithm = CommAlgorithm::mpi};
  EXPECT_EQ(unavailable_reason(Transport::nccl, conditions),
            "NCCL chooses its own algorithms, not that of --comm-algorithm");
  EXPECT_EQ(unavailable_reason(Transport::host, conditions), "");
}

TEST(Transports, say_why_they_are_none) {
  const auto refusal = [](const char* name, const gpu::TransportConditions& conditions) {
    return test::refusal([&] { choose_transport(name, conditions); });
  };
  EXPECT_EQ(refusal("nccl", kEmulated),
            "--transport: nccl: emulated GPUs support only the host transport; use host, which always works");
  EXPECT_EQ(refusal("cuda-aware", kShared),
            "--transport: cuda-aware: ranks that share a GPU can use only the host transport; use host, "
            "which always works");
  EXPECT_EQ(refusal("cuda-aware", {.algorithm = CommAlgorithm::mpi}),
            "--transport: cuda-aware: --comm-algorithm mpi adds on the host; use host, which always works");
  EXPECT_EQ(refusal("nccl", {}),  // the emulated stage 3 is built without it
            "--transport: nccl: this program was built without NCCL; use host, which always works");
}

TEST(Transports, have_names) {
  EXPECT_EQ(gpu::transport_names(), (std::vector<std::string>{"nccl", "cuda-aware", "host"}));
  for (const Transport transport : {Transport::nccl, Transport::cuda_aware, Transport::host}) {
    EXPECT_EQ(gpu::transport_names()[static_cast<std::size_t>(transport)], name_of(transport));
  }
}

}  // namespace
}  // namespace stagegpt::test
