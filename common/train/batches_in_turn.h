// Distributes independent batches of an evaluation over the ranks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "common/comm/agreement.h"

namespace stagegpt {

// How windows of a text, or endings of a task, are evaluated.
struct BatchOptions {
  std::int64_t batch_size = 1;                     // items per batch, on a rank
  bool stoppable = false;                          // whether a signal stops the evaluation
  RankGroup* stopping = nullptr;                   // ranks that stop together; null: those of the group
  std::function<void(std::int64_t)> on_done = {};  // called with the number of completed items
};

// Divides `items` into batches, of which rank r computes those with the numbers r, r + ranks, ….
// compute(first, end, out) writes the results of the batch of items [first, end), `results` in number. All
// ranks get those of all batches, in their order, which does not depend on the number of ranks. Empty if
// `stoppable` and any rank has received a signal (stop_signals.h); the ranks stop after their current
// batches.
template <class Result>
std::optional<std::vector<Result>> compute_in_turn(
    RankGroup& group, std::int64_t items, std::int64_t results, const BatchOptions& options,
    const std::function<void(std::int64_t, std::int64_t, std::span<Result>)>& compute) {
  const std::int64_t B = options.batch_size, batches = (items + B - 1) / B, ranks = group.size(),
                     turns = (batches + ranks - 1) / ranks;
  std::vector<Result> own(static_cast<std::size_t>(turns * results));
  for (std::int64_t turn = 0; turn < turns; ++turn) {
    group.enter("validation");
    if (options.stoppable && any(options.stopping ? *options.stopping : group, StopSignals::requested()))
      return std::nullopt;
    if (options.on_done) options.on_done(std::min(items, turn * ranks * B));
    const std::int64_t batch = turn * ranks + group.rank();
    if (batch < batches) {  // in the last turn, some ranks have none
      compute(batch * B, std::min(items, (batch + 1) * B),
              std::span(own).subspan(static_cast<std::size_t>(turn * results),
                                     static_cast<std::size_t>(results)));
    }
  }
  const std::vector<Result> gathered = gather(group, own);  // by rank, then by turn
  std::vector<Result> all;
  for (std::int64_t batch = 0; batch < batches; ++batch) {
    const auto first = gathered.begin() + (batch % ranks * turns + batch / ranks) * results;
    all.insert(all.end(), first, first + results);
  }
  if (options.on_done) options.on_done(items);
  return all;
}

}  // namespace stagegpt
