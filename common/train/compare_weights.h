// Every rank has the same weights, to the last bit. Where one has not, its memory, its processor or its
// network is at fault, or this program: nothing else tells.
#pragma once

#include <string>

#include "common/comm/agreement.h"
#include "common/model/parameters.h"

namespace stagegpt {

// On every rank.
class WeightsDiffer final : public AgreedFailure {
 public:
  using AgreedFailure::AgreedFailure;
};

// Compares hashes of all ranks' weights, for which each reads its own once. Throws WeightsDiffer, on all
// ranks, that names `when` and the ranks, with their hosts, whose weights are not those of the majority. A
// rank without memory for it makes all throw AgreedFailure.
void require_same_weights(RankGroup& group, Backend& backend, const Parameters& parameters,
                          const std::string& when);

}  // namespace stagegpt
