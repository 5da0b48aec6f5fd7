// A random permutation of [0, n) of which any element is found in O(1).
#pragma once

#include <cstdint>
#include <utility>

#include "common/random/philox.h"

namespace stagegpt {

// Where `i` goes under the permutation of [0, n) that `key` names: a four-round Feistel network (Luby and
// Rackoff, 1988) with Philox as its round function, on the next larger power of four, walked until it lands
// in the range.
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
