// A random permutation of [0, n), each element of which is computed in O(1).
#pragma once

#include <cstdint>
#include <utility>

#include "common/random/philox.h"

namespace stagegpt {

// Element `i` of the permutation of [0, n) that `key` selects: a four-round Feistel network (Luby and
// Rackoff, 1988) on the next larger power of four, with Philox as the round function, iterated until the
// result is in the range (cycle walking).
inline std::uint64_t permuted(const RandomKey& key, std::uint64_t i, std::uint64_t n) {
  int half = 1;
  while ((std::uint64_t{1} << 2 * half) < n) ++half;
  const std::uint64_t mask = (std::uint64_t{1} << half) - 1;
  do {
    std::uint64_t left = i >> half, right = i & mask;
    for (std::uint64_t round = 0; round < 4; ++round) {
      const std::uint64_t mixed = philox(key, round << 32 | right)[0] & mask;
      left = std::exchange(right, left ^ mixed);
    }
    i = left << half | right;
  } while (i >= n);
  return i;
}

}  // namespace stagegpt
