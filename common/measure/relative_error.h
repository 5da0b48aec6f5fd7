// Relative error of results against a reference.
#pragma once

#include <span>

namespace stagegpt {

// ‖actual - expected‖ / max(‖expected‖, floor), in f64; 0 if both are equal. With NaN or infinity the result
// exceeds any limit.
double relative_error(std::span<const float> actual, std::span<const float> expected, double floor = 0);

// ‖values‖, in f64.
double norm(std::span<const float> values);

}  // namespace stagegpt
