// Distributes independent batches of an evaluation over the ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "common/comm/agreement.h"

namespace stagegpt {

struct InTurn {
  std::int64_t batches = 0;
  std::int64_t results = 1;                           // of a batch
  bool stoppable = false;                             // whether a signal stops the work
  RankGroup* stopping = nullptr;                      // ranks that stop together; null: those that compute
  std::function<void(std::int64_t)> on_batches = {};  // called with the number of completed batches
};

// Rank r computes the batches r, r + ranks, …. compute(batch, results) fills in the results of one. All ranks
// get those of all batches, in their order, which does not depend on the number of ranks. Empty if
// `stoppable` and any rank has received a signal (stop_signals.h); the ranks stop after their current
// batches.
template <class Result>
std::optional<std::vector<Result>> compute_in_turn(
    RankGroup& group, const InTurn& work,
    const std::function<void(std::int64_t, std::span<Result>)>& compute) {
  const std::int64_t ranks = group.size(), turns = (work.batches + ranks - 1) / ranks;
  std::vector<Result> own(static_cast<std::size_t>(turns * work.results));
  for (std::int64_t turn = 0; turn < turns; ++turn) {
    group.enter("validation");
    if (work.stoppable && any(work.stopping ? *work.stopping : group, StopSignals::requested()))
      return std::nullopt;
    if (work.on_batches) work.on_batches(turn * ranks);
    const std::int64_t batch = turn * ranks + group.rank();
    if (batch < work.batches) {  // in the last turn, some ranks have none
      compute(batch, std::span(own).subspan(static_cast<std::size_t>(turn * work.results),
                                            static_cast<std::size_t>(work.results)));
    }
  }
  const std::vector<Result> gathered = gather(group, own);  // by rank, then by turn
  std::vector<Result> all;
  for (std::int64_t batch = 0; batch < work.batches; ++batch) {
    const auto first = gathered.begin() + (batch % ranks * turns + batch / ranks) * work.results;
    all.insert(all.end(), first, first + work.results);
  }
  if (work.on_batches) work.on_batches(work.batches);
  return all;
}

}  // namespace stagegpt
