// Where the ranks run: nodes, and the cores that each may use.
#pragma once

#include <string>
#include <vector>

#include "common/comm/rank_group.h"

namespace stagegpt {

struct Placement {
  int nodes = 1;
  int cores = 1;                   // that this rank may use
  int online_cores = 1;            // that its node has
  std::vector<int> sharing = {0};  // ranks that may use any of them, this one too
  std::vector<int> on_node = {0};  // ranks that run on its node, this one too
  int node_rank = 0;               // this one's place among them
};

// A collective call.
Placement find_placement(RankGroup& group);

// One line for the reader: how many ranks on how many nodes, and this rank's cores.
std::string description(const Placement& placement, int ranks);

// What the user should know, if there is anything: cores that stay idle, or threads of whatever ranks that
// share one. `threads` are this rank's. A collective call.
std::string warning(RankGroup& group, const Placement& placement, int threads);

}  // namespace stagegpt
