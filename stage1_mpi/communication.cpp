#include "stage1_mpi/communication.h"

#include <algorithm>

#include "common/comm/agreement.h"
#include "common/profile/recorded_communicator.h"
#include "stage1_mpi/hierarchical_communicator.h"

namespace stagegpt {
namespace {

// The nodes of an MPI job, of which each rank knows its own.
struct OwnNode {
  int first, size;  // its first rank, the number of its ranks
};

int found_ranks_per_node(MpiGroup& group) {
  const std::unique_ptr<MpiGroup> node = group.node();
  const std::vector<OwnNode> nodes = gather(group, OwnNode{from_root(*node, group.rank()), node->size()});
  const int size = nodes[0].size;
  for (int rank = 0; rank < group.size(); ++rank) {
    const OwnNode& own = nodes[static_cast<std::size_t>(rank)];
    if (own.size == size && own.first == rank / size * size) continue;
    throw AgreedUserError(concat("--comm-algorithm hierarchical: expected ", size,
                                 " neighbouring ranks on each node, as with "
                                 "mpirun --map-by ppr:",
                                 size, ":node; rank ", rank, " (", group.host(rank), ") is on a node with ",
                                 own.size, ", the first of them rank ", own.first));
  }
  return size;
}

std::unique_ptr<Communicator> in_two_levels(MpiGroup& group, Backend& backend, int per_node,
                                            const Network& network, Timeline* timeline) {
  auto all = make_mpi_communicator(group, backend, CommAlgorithm::ring);
  const int node = group.rank() / per_node, local = group.rank() % per_node;
  auto scatter = recorded(timeline, all->split(node, local), "within node");
  auto across = recorded(timeline, slowed(network, all->split(local, node)), "across nodes");
  auto gather = recorded(timeline, all->split(node, local), "within node");
  return make_hierarchical_communicator({.all = slowed(network, std::move(all)),
                                         .scatter = std::move(scatter),
                                         .across = std::move(across),
                                         .gather = std::move(gather)},
                                        backend, group.watchdog());
}

}  // namespace

int ranks_per_node(MpiGroup& group, int requested) {
  if (requested == 0) return found_ranks_per_node(group);
  if (group.size() % requested == 0) return requested;
  throw AgreedUserError(
      concat("--ranks-per-node: ", group.size(), " ranks cannot be divided into nodes of ", requested));
}

std::unique_ptr<Communicator> make_communicator(MpiGroup& group, Backend& backend,
                                                const Communication& communication, Timeline* timeline) {
  if (communication.algorithm != CommAlgorithm::hierarchical) {
    return slowed(communication.network, make_mpi_communicator(group, backend, communication.algorithm));
  }
  const int per_node = ranks_per_node(group, communication.ranks_per_node);
  if (per_node > 1 && per_node < group.size())
    return in_two_levels(group, backend, per_node, communication.network, timeline);
  const Network network = per_node == group.size() ? Network{} : communication.network;
  return slowed(network, make_mpi_communicator(group, backend, CommAlgorithm::ring));
}

std::string description(MpiGroup& group, const Communication& communication) {
  std::string text;
  if (communication.algorithm == CommAlgorithm::hierarchical) {
    const int per_node = ranks_per_node(group, communication.ranks_per_node), nodes = group.size() / per_node;
    text = concat(", hierarchical: ", nodes, nodes == 1 ? " node of " : " nodes of ", per_node,
                  per_node == 1 ? " rank" : " ranks");
  }
  const std::string delay = description(communication.network);
  return delay.empty() ? text : concat(text, "; ", delay);
}

}  // namespace stagegpt
