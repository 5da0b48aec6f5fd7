// Many normal numbers at once.
#pragma once

#include <cstdint>
#include <span>

#include "common/random/philox.h"

namespace stagegpt {

// out[i] = mean + std · random_normal(key, first + i), rounded to f32: the same bits as one at a time, in a
// tenth of the time. For std > 0.
void draw_normal(const RandomKey& key, std::uint64_t first, double mean, double std, std::span<float> out);

}  // namespace stagegpt
