// The difference between the clocks of two ranks, for a timeline that shows all ranks.
//
// A rank notes its time t0, sends a message to rank 0, gets its time T back, and notes t1. Rank 0 read its
// clock between t0 and t1, so its clock minus this rank's is T - (t0 + t1)/2, with an error of at most (t1 -
// t0)/2. Of several round trips the shortest one counts. Cristian, "Probabilistic clock synchronization",
// 1989.
#pragma once

#include <cstdint>
#include <functional>

#include "common/comm/rank_group.h"

namespace stagegpt {

// In nanoseconds. At time `at` of this rank's clock, rank 0's clock minus this rank's is `offset` ± `error`.
struct ClockOffset {
  std::int64_t at = 0, offset = 0, error = 0;
};

// Collective call. On rank 0 the result is 0 ± 0. `now` returns the time of this rank's clock.
ClockOffset measure_clock_offset(RankGroup& group, const std::function<std::int64_t()>& now);

// Rank 0's time at time `t` of this rank's clock. The offset is interpolated between two measurements,
// because clocks of different nodes may run at slightly different rates.
std::int64_t time_of_root(std::int64_t t, const ClockOffset& first, const ClockOffset& last);

}  // namespace stagegpt
