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

Place own_place() {
  Place place;
  gethostname(place.node, sizeof place.node - 1);
  CPU_ZERO(&place.cores);
  if (sched_getaffinity(0, sizeof place.cores, &place.cores) != 0) {  // more cores than the set can tell
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
  return {.nodes = static_cast<int>(nodes.size()),
          .cores = std::max(1, CPU_COUNT(&own.cores)),
          .online_cores = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)),
          .sharing = static_cast<int>(
              std::ranges::count_if(places, [&](const Place& place) { return overlap(place, own); }))};
}

std::string description(const Placement& placement, int ranks) {
  return concat(ranks, ranks == 1 ? " rank" : " ranks", " on ", placement.nodes,
                placement.nodes == 1 ? " node, each on " : " nodes, each on ", placement.cores, " of ",
                placement.online_cores, placement.online_cores == 1 ? " core" : " cores",
                placement.sharing > 1 ? concat(", which ", placement.sharing, " ranks share") : "");
}

std::string warning(const Placement& placement, int ranks, int threads) {
  const int demanded = threads * placement.sharing;
  if (demanded > placement.cores) {
    return concat("warning: ", demanded, demanded == 1 ? " thread shares " : " threads share ",
                  placement.cores, placement.cores == 1 ? " core" : " cores",
                  "; fewer ranks or --threads would not",
                  demanded <= placement.online_cores
                      ? concat(", nor would mpirun --map-by slot:PE=", threads, " --bind-to core")
                      : "");
  }
  if (ranks == 1 && placement.cores < placement.online_cores) {
    return concat("note: the launcher has bound this rank to ", placement.cores, " of ",
                  placement.online_cores, " cores; mpirun --bind-to none gives it all");
  }
  return "";
}

}  // namespace stagegpt
