// The transport of a device's tensors between ranks.
#include "stage3_mpi_cuda/transport.h"

#include <gtest/gtest.h>

#include "tests/support/refusal.h"

namespace stagegpt::test {
namespace {

using gpu::choose_transport;
using gpu::Transport;

constexpr gpu::TransportConditions kEmulated{.is_gpu = false}, kShared{.shares_gpu = true};

constexpr gpu::TransportConditions kByMpi{.algorithm = CommAlgorithm::mpi};

// MPI's nonblocking reductions compute on the host, which cannot read a GPU's memory. NCCL has algorithms of
// its own. The emulated stage 3, and this test, are built without it.
TEST(Transports, say_why_they_are_none) {
  const char *const emulated = "emulated GPUs support only the host transport",
                    *const shared = "ranks that share a GPU can use only the host transport";
  struct Case {
    const char* name;
    gpu::TransportConditions conditions;
    const char* reason;
  };
  for (const auto& [name, conditions, reason] :
       {Case{"nccl", {}, "this program was built without NCCL"},
        {"nccl", kEmulated, emulated},
        {"nccl", kShared, shared},
        {"nccl", kByMpi, "NCCL chooses its own algorithms, not that of --comm-algorithm"},
        {"cuda-aware", kEmulated, emulated},
        {"cuda-aware", kShared, shared},
        {"cuda-aware", kByMpi, "--comm-algorithm mpi adds on the host"}}) {
    EXPECT_EQ(refusal([&] { choose_transport(name, conditions); }),
              concat("--transport: ", name, ": ", reason, "; use host, which always works"));
  }
}

TEST(Transports, by_way_of_the_host_always_work_and_are_chosen_where_no_other_does) {
  for (const auto& conditions : {gpu::TransportConditions{}, kEmulated, kShared, kByMpi})
    EXPECT_EQ(choose_transport("host", conditions), Transport::host);
  for (const auto& conditions : {kEmulated, kShared, kByMpi})
    EXPECT_EQ(choose_transport(std::nullopt, conditions), Transport::host);
}

TEST(Transports, have_names) {
  EXPECT_EQ(gpu::transport_names(), (std::vector<std::string>{"nccl", "cuda-aware", "host"}));
  for (const Transport transport : {Transport::nccl, Transport::cuda_aware, Transport::host}) {
    EXPECT_EQ(gpu::transport_names()[static_cast<std::size_t>(transport)], name_of(transport));
  }
}

}  // namespace
}  // namespace stagegpt::test
