// Which GPU a rank uses, and which ranks share one.
#include "stage3_mpi_cuda/gpu_binding.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>

#include "tests/support/mpi_ranks.h"

namespace stagegpt::test {
namespace {

using gpu::ranks_on_one_gpu;

// The placement of all ranks on one node.
Placement one_node() {
  Placement placement;
  placement.on_node.resize(static_cast<std::size_t>(ranks().size()));
  std::iota(placement.on_node.begin(), placement.on_node.end(), 0);
  placement.node_rank = ranks().rank();
  return placement;
}

gpu::DeviceInfo device(int number) {
  gpu::DeviceInfo info;
  info.id = "gpu " + std::to_string(number);
  return info;
}

TEST(GpuBinding, ranks_of_a_node_take_gpus_in_turn) {
  for (int node_rank = 0; node_rank < 6; ++node_rank) {
    Placement placement;
    placement.node_rank = node_rank;
    EXPECT_EQ(gpu::default_device(placement, 4), node_rank % 4);
    EXPECT_EQ(gpu::default_device(placement, 1), 0) << "the launcher shows each rank its own";
  }
}

TEST(GpuBinding, each_rank_with_its_own_gpu_shares_none) {
  EXPECT_EQ(ranks_on_one_gpu(ranks(), one_node(), device(ranks().rank())), std::nullopt);
}

TEST(GpuBinding, the_first_two_on_one_gpu_are_named) {
  const auto sharers = ranks_on_one_gpu(ranks(), one_node(), device(ranks().rank() / 2));
  if (ranks().size() == 1) {
    EXPECT_EQ(sharers, std::nullopt);
  } else {
    EXPECT_EQ(sharers, std::pair(0, 1));
  }
}

TEST(GpuBinding, gpus_of_other_nodes_are_others) {
  Placement own_node;
  own_node.on_node = {ranks().rank()};
  EXPECT_EQ(ranks_on_one_gpu(ranks(), own_node, device(0)), std::nullopt);
  EXPECT_EQ(gpu::ranks_on_gpu_of(ranks(), own_node, device(0)), 1);
}

// Ranks 0 and 1 have GPU 0, ranks 2 and 3 have GPU 1. With three ranks, the last one is alone.
TEST(GpuBinding, the_ranks_of_a_gpu_are_counted) {
  const int own = ranks().rank() / 2, last = (ranks().size() - 1) / 2;
  const int expected = own == last && ranks().size() % 2 == 1 ? 1 : 2;
  EXPECT_EQ(gpu::ranks_on_gpu_of(ranks(), one_node(), device(own)), expected);
  EXPECT_EQ(gpu::ranks_on_gpu_of(ranks(), one_node(), device(0)), ranks().size());
}

}  // namespace
}  // namespace stagegpt::test
