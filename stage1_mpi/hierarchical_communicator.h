// Collectives in two levels, for N = M·L ranks on M nodes with L ranks each: rank r is local rank r mod L of
// node r/L. Messages across nodes are slow, and each rank may have a network adapter of its own.
//
//   all-reduce   1. within each node   reduce-scatter: local rank l gets the sum of slice l of L
//                2. across nodes       all-reduce of slice l among the M ranks with local rank l
//                3. within each node   all-gather of the slices
//
// L rings cross the nodes at the same time, one for each local rank. Each rank sends 2(L-1)/L of the tensor
// within its node and 2(M-1)/M · 1/L of it across nodes, in 2(L-1) and 2(M-1) steps. A single ring has 2(N-1)
// steps, and leaves each node by one rank.
//
// A reduce-scatter ends in slice r of N on rank r. So step 1 reduces each block of L slices by itself: local
// rank l then has its slice of each block, M in all, which are packed into one tensor for step 2. An
// all-gather does the same backwards.
#pragma once

#include <memory>

#include "common/backend/backend.h"
#include "common/comm/communicator.h"
#include "stage1_mpi/watchdog.h"

namespace stagegpt {

// What two levels are made of. Operations on one level must not be mixed up with others, so the two steps
// within a node have a communicator each.
struct Levels {
  std::unique_ptr<Communicator> all;      // all ranks, for messages between two of them
  std::unique_ptr<Communicator> scatter;  // the ranks of this node
  std::unique_ptr<Communicator> across;   // the ranks of all nodes with this local rank
  std::unique_ptr<Communicator> gather;   // the ranks of this node
};

// `across` must add in an order that depends only on the ranks, as the ring does: then all ranks get the same
// bits. Backend and watchdog are borrowed. split() gives a communicator with one level.
std::unique_ptr<Communicator> make_hierarchical_communicator(Levels levels, Backend& backend,
                                                             Watchdog& watchdog);

}  // namespace stagegpt
