// Stage 1's description of where ranks run, and of threads that share cores.
#include "stage1_mpi/placement.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>

#include "tests/support/counting_communicator.h"

namespace stagegpt::test {
namespace {

TEST(Placement, OfRanksThatRunAlikeIsOneNode) {
  AlikeRanks ranks(1, 3);
  const Placement placement = find_placement(ranks);
  cpu_set_t cores;
  ASSERT_EQ(sched_getaffinity(0, sizeof cores, &cores), 0);
  EXPECT_EQ(placement.nodes, 1);
  EXPECT_EQ(placement.cores, CPU_COUNT(&cores));
  EXPECT_EQ(placement.online_cores, sysconf(_SC_NPROCESSORS_ONLN));
  EXPECT_EQ(placement.sharing, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(placement.on_node, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(placement.node_rank, 1);
}

TEST(Placement, IsOneLineForTheReader) {
  const auto placement = [](int nodes, int cores, int online, std::vector<int> sharing) {
    return Placement{.nodes = nodes, .cores = cores, .online_cores = online, .sharing = std::move(sharing)};
  };
  EXPECT_EQ(description(placement(1, 1, 1, {0}), 1), "1 rank on 1 node, each on 1 of 1 core");
  EXPECT_EQ(description(placement(1, 4, 8, {0, 1}), 2),
            "2 ranks on 1 node, each on 4 of 8 cores, which 2 ranks share");
  EXPECT_EQ(description(placement(2, 4, 8, {3}), 6), "6 ranks on 2 nodes, each on 4 of 8 cores");
}

TEST(Placement, WarnsOfThreadsThatShareCores) {
  const Placement two{.cores = 4, .online_cores = 8, .sharing = {0, 1}};
  AlikeRanks pair(0, 2);
  EXPECT_EQ(warning(pair, two, 2), "") << "four threads on four cores";
  EXPECT_EQ(warning(pair, two, 3),
            "warning: 6 threads share 4 cores (rank 0); use fewer ranks or fewer --threads, or mpirun "
            "--map-by slot:PE=3 --bind-to core");
  EXPECT_EQ(warning(pair, two, 4),
            "warning: 8 threads share 4 cores (rank 0); use fewer ranks or fewer --threads, or mpirun "
            "--map-by slot:PE=4 --bind-to core");
  EXPECT_EQ(warning(pair, two, 5),
            "warning: 10 threads share 4 cores (rank 0); use fewer ranks or fewer --threads");
  const Placement narrow{.cores = 1, .online_cores = 1, .sharing = {0}};
  EXPECT_EQ(warning(pair, narrow, 2),
            "warning: 2 threads share 1 core (rank 0); use fewer ranks or fewer --threads");
}

TEST(Placement, TellsOneRankOfCoresThatItLacks) {
  AlikeRanks one(0, 1), pair(0, 2);
  const Placement bound{.cores = 3, .online_cores = 8}, free{.cores = 8, .online_cores = 8};
  EXPECT_EQ(
      warning(one, bound, 3),
      "note: the launcher has bound this rank to 3 of 8 cores; mpirun --bind-to none gives it all cores");
  EXPECT_EQ(warning(pair, bound, 3), "") << "others have the rest";
  EXPECT_EQ(warning(one, free, 8), "");
}

}  // namespace
}  // namespace stagegpt::test
