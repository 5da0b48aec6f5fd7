// How far results are from a reference.
#pragma once

#include <span>

namespace stagegpt {

// ‖actual - expected‖ / max(‖expected‖, floor), in f64; 0 when both are the same. NaN and infinity do not
// pass any limit.
double relative_error(std::span<const float> actual, std::span<const float> expected, double floor = 0);

// ‖values‖, in f64.
double norm(std::span<const float> values);

}  // namespace stagegpt
