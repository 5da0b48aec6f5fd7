// Checks that all ranks with the same part of a model have bit-identical weights, and shadows of them if ops
// read these. A difference means an error in a rank's memory, processor or network, or in this program, which
// would otherwise remain unnoticed.
#pragma once

#include <cstdint>
#include <string>

#include "common/comm/agreement.h"
#include "common/comm/communicator.h"
#include "common/model/parameters.h"

namespace stagegpt {

// Thrown on every rank.
class WeightsDiffer final : public AgreedFailure {
 public:
  using AgreedFailure::AgreedFailure;
};

// Compares hashes of the weights and shadows of all ranks; with several tensor ranks or stages, of those with
// the same part of the model (grid.h). If they differ, all ranks throw WeightsDiffer; the message contains
// `when`, and the ranks and hosts whose weights differ from the majority. If one rank is out of memory, all
// throw AgreedFailure. The weights must be up to date (GradientSync::gather_weights()).
void require_same_weights(RankGroup& group, Backend& backend, const Parameters& parameters,
                          const std::string& when, int tensor_ranks = 1, int stages = 1);

// Draws random weights (Parameters::initialize): each rank draws a slice, then the ranks exchange their
// slices. The bits are those of one process. Throws as broadcast_weights() does, and Stopped if a signal has
// been received.
void draw_weights(Communicator& communicator, Backend& backend, Parameters& parameters, std::uint64_t seed,
                  int threads);

// Broadcasts the weights of rank 0, then compares the weights of all ranks with require_same_weights().
void broadcast_weights(Communicator& communicator, Backend& backend, Parameters& parameters);

}  // namespace stagegpt
