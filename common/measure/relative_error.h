// Relative error of results against a reference.
#pragma once

#include <span>

namespace stagegpt {

// The squares of a relative error, for values that are compared in parts.
struct SquaredError {
  double difference = 0, expected = 0;  // ‖actual - expected‖², ‖expected‖²

  void add(std::span<const float> actual, std::span<const float> expected_values);
  void add(const SquaredError& other) {
    difference += other.difference;
    expected += other.expected;
  }
  // ‖actual - expected‖ / max(‖expected‖, floor).
  double relative(double floor = 0) const;
};

// ‖actual - expected‖ / max(‖expected‖, floor), in f64; 0 if both are equal. With NaN or infinity the result
// exceeds any limit.
double relative_error(std::span<const float> actual, std::span<const float> expected, double floor = 0);

// ‖values‖, in f64.
double norm(std::span<const float> values);

}  // namespace stagegpt
