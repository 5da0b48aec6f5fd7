// A slower network than the machine's, by delay: an operation is not complete before its time on that network
// has passed. On one machine, ranks exchange messages through memory, where communication is a copy that the
// processor makes and that nothing can hide. With a network that is slower than this, one sees what `--comm`
// hides behind the backward pass, as on a cluster.
//
// The times are those of a ring (docs/scaling.md), N ranks, S bytes, latency α, bandwidth 1/β:
//   reduce-scatter, all-gather   (N-1)·(α + S/N·β)
//   all-reduce                   twice as much
//   broadcast                    ⌈log₂N⌉·α + S·β
//   a message, an exchange       α + S·β
// A rank has one connection, so operations that overlap share it: each begins when the one before is
// complete.
#pragma once

#include <memory>
#include <string>

#include "common/comm/communicator.h"

namespace stagegpt {

struct Network {
  double latency = 0;           // α, seconds of a message without bytes
  double seconds_per_byte = 0;  // β

  bool delays() const { return latency > 0 || seconds_per_byte > 0; }
};

// Seconds of an operation among `ranks` on a tensor of `bytes`.
double reduce_scatter_seconds(const Network& network, int ranks, double bytes);  // also of an all-gather
double broadcast_seconds(const Network& network, int ranks, double bytes);
double message_seconds(const Network& network, double bytes);

// "network delayed: 100 µs, 1 Gb/s"; empty if it delays nothing.
std::string description(const Network& network);

// Returns `communicator` itself if the network delays nothing. Messages of its group, between hosts, are not
// delayed. Waiting ranks sleep.
std::unique_ptr<Communicator> slowed(const Network& network, std::unique_ptr<Communicator> communicator);

}  // namespace stagegpt
