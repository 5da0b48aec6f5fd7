#include "stage1_mpi/placement.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "common/comm/agreement.h"

namespace stagegpt {
namespace {

struct Place {
  char node[256] = {};
  cpu_set_t cores;

  std::string_view name() const { return node; }
};

// Threads, and the cores that they share.
struct Load {
  int threads = 0, cores = 1;

  double threads_per_core() const { return static_cast<double>(threads) / cores; }
};

Place own_place() {
  Place place;
  gethostname(place.node, sizeof place.node - 1);
  CPU_ZERO(&place.cores);
  if (sched_getaffinity(0, sizeof place.cores, &place.cores) != 0) {  // more cores than cpu_set_t has bits
    for (int core = 0; core < CPU_SETSIZE; ++core) CPU_SET(core, &place.cores);
  }
  return place;
}

bool overlap(const Place& a, const Place& b) {
  cpu_set_t both;
  CPU_AND(&both, &a.cores, &b.cores);
  return a.name() == b.name() && CPU_COUNT(&both) > 0;
}

}  // namespace

Placement find_placement(RankGroup& group) {
  const std::vector<Place> places = gather(group, own_place());
  const Place& own = places[static_cast<std::size_t>(group.rank())];
  std::set<std::string_view> nodes;
  for (const Place& place : places) nodes.insert(place.name());
  std::vector<int> sharing, on_node;
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    if (overlap(places[rank], own)) sharing.push_back(static_cast<int>(rank));
    if (places[rank].name() == own.name()) on_node.push_back(static_cast<int>(rank));
  }
  const auto own_place_on_node = std::ranges::find(on_node, group.rank());
  return {.nodes = static_cast<int>(nodes.size()),
          .cores = std::max(1, CPU_COUNT(&own.cores)),
          .online_cores = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)),
          .sharing = sharing,
          .on_node = on_node,
          .node_rank = static_cast<int>(own_place_on_node - on_node.begin())};
}

std::string description(const Placement& placement, int ranks) {
  return concat(
      ranks, ranks == 1 ? " rank" : " ranks", " on ", placement.nodes,
      placement.nodes == 1 ? " node, each on " : " nodes, each on ", placement.cores, " of ",
      placement.online_cores, placement.online_cores == 1 ? " core" : " cores",
      placement.sharing.size() > 1 ? concat(", which ", placement.sharing.size(), " ranks share") : "");
}

std::string warning(RankGroup& group, const Placement& placement, int threads) {
  const std::vector<int> all_threads = gather(group, threads);
  Load own{0, placement.cores};
  for (const int rank : placement.sharing) own.threads += all_threads[static_cast<std::size_t>(rank)];
  const std::vector<Load> loads = gather(group, own);
  const auto worst = std::ranges::max_element(loads, {}, &Load::threads_per_core);
  if (worst->threads_per_core() > 1) {
    return concat("warning: ", worst->threads, worst->threads == 1 ? " thread shares " : " threads share ",
                  worst->cores, worst->cores == 1 ? " core" : " cores", " (rank ", worst - loads.begin(),
                  "); use fewer ranks or fewer --threads",
                  worst->threads <= placement.online_cores
                      ? concat(", or mpirun --map-by slot:PE=", threads, " --bind-to core")
                      : "");
  }
  if (group.size() == 1 && placement.cores < placement.online_cores) {
    return concat("note: the launcher has bound this rank to ", placement.cores, " of ",
                  placement.online_cores, " cores; mpirun --bind-to none gives it all cores");
  }
  return "";
}

}  // namespace stagegpt
