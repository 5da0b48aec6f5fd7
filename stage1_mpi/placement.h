// The placement of ranks: their nodes, and the cores that each rank may use.
#pragma once

#include <string>
#include <vector>

#include "common/comm/rank_group.h"

namespace stagegpt {

struct Placement {
  int nodes = 1;
  int cores = 1;                   // the cores that this rank may use
  int online_cores = 1;            // the cores of its node
  std::vector<int> sharing = {0};  // ranks that may use any of these cores, including this one
  std::vector<int> on_node = {0};  // ranks on its node, including this one
  int node_rank = 0;               // the index of this rank in on_node
};

// Collective call.
Placement find_placement(RankGroup& group);

// A description in one line: the numbers of ranks and nodes, and this rank's cores.
std::string description(const Placement& placement, int ranks);

// A warning for the user if threads of any ranks share cores, or a note if cores stay idle; empty otherwise.
// `threads` is the number of this rank's threads. Collective call.
std::string warning(RankGroup& group, const Placement& placement, int threads);

}  // namespace stagegpt
