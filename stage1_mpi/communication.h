// The communicator over MPI that the flags ask for: its algorithm, the ranks of a node, a slower network.
#pragma once

#include <memory>
#include <string>

#include "common/comm/slow_network.h"
#include "common/profile/timeline.h"
#include "stage1_mpi/mpi_communicator.h"

namespace stagegpt {

struct Communication {
  CommAlgorithm algorithm = CommAlgorithm::ring;
  int ranks_per_node = 0;  // for hierarchical; 0: those that share memory
  // The network between all ranks; for hierarchical, between nodes.
  Network network = {};
};

// The number of ranks L of each node: rank r is on node r/L. Throws AgreedUserError if `requested` does not
// divide the number of ranks, or, with 0 requested, if the ranks that share memory are not so many neighbours
// on each node. Collective call.
int ranks_per_node(MpiGroup& group, int requested);

// Collective call. Group and backend are borrowed. A timeline, if there is one, records the levels of
// `hierarchical`: "reduce_scatter within node", "all_reduce across nodes". Hierarchical with a single node,
// or with one rank on each node, is a ring.
std::unique_ptr<Communicator> make_communicator(MpiGroup& group, Backend& backend,
                                                const Communication& communication, Timeline* timeline);

// ", hierarchical: 4 nodes of 8 ranks", "; network delayed: 100 µs"; empty for a ring. Collective call.
std::string description(MpiGroup& group, const Communication& communication);

}  // namespace stagegpt
