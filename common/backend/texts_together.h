// How many texts grow together, at most (--num-samples).
#pragma once

#include <cstdint>

namespace stagegpt {

// The CPU backend multiplies one token of each of so many texts, (B,1,C), as it multiplies that of a single
// text: with the same sums, to the bit.
inline constexpr std::int64_t kMostTextsTogether = 32;

}  // namespace stagegpt
