#include "common/profile/clock_offset.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace stagegpt {
namespace {

constexpr int kRoundTrips = 50;

void answer(RankGroup& group, int rank, const std::function<std::int64_t()>& now) {
  for (int i = 0; i < kRoundTrips; ++i) {
    std::int64_t time = 0;
    group.receive(std::as_writable_bytes(std::span(&time, 1)), rank);
    time = now();
    group.send(std::as_bytes(std::span(&time, 1)), rank);
  }
}

ClockOffset ask(RankGroup& group, const std::function<std::int64_t()>& now) {
  ClockOffset best{.error = std::numeric_limits<std::int64_t>::max()};
  for (int i = 0; i < kRoundTrips; ++i) {
    const std::int64_t begin = now();
    std::int64_t time = begin;
    group.send(std::as_bytes(std::span(&time, 1)), 0);
    group.receive(std::as_writable_bytes(std::span(&time, 1)), 0);
    const std::int64_t trip = now() - begin, error = (trip + 1) / 2;
    if (error < best.error) best = {begin + trip / 2, time - (begin + trip / 2), error};
  }
  return best;
}

}  // namespace

ClockOffset measure_clock_offset(RankGroup& group, const std::function<std::int64_t()>& now) {
  ClockOffset own{.at = now()};
  for (int rank = 1; rank < group.size(); ++rank) {
    if (group.is_root()) answer(group, rank, now);
    if (group.rank() == rank) own = ask(group, now);
  }
  return own;
}

std::int64_t time_of_root(std::int64_t t, const ClockOffset& first, const ClockOffset& last) {
  if (last.at <= first.at) return t + first.offset;
  const double share = static_cast<double>(t - first.at) / static_cast<double>(last.at - first.at);
  const auto change = static_cast<double>(last.offset - first.offset);
  return t + first.offset + std::llround(std::clamp(share, 0.0, 1.0) * change);
}

}  // namespace stagegpt
