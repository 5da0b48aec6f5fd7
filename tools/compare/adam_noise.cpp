#include "tools/compare/adam_noise.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/measure/relative_error.h"

namespace stagegpt {

void AdamNoise::add_gradients(const std::string& parameter, std::span<const float> actual,
                              std::span<const float> expected) {
  constexpr double kNoise = 1e-3;
  std::vector<bool>& noisy = noisy_[parameter];
  noisy.resize(expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double difference = std::abs(static_cast<double>(actual[i]) - expected[i]);
    if (difference > kNoise * std::abs(static_cast<double>(expected[i]))) noisy[i] = true;
  }
}

void AdamNoise::add_weights(std::span<const float> actual, std::span<const float> expected, bool is_vector) {
  // A bias is added to sums whose elements are of the order of 1. So while the bias is small, its error is
  // measured relative to kVectorElement, not to its own size.
  constexpr double kVectorElement = 0.1;
  const double floor = is_vector ? kVectorElement * std::sqrt(static_cast<double>(expected.size())) : 0;
  next_drift_ = std::max(next_drift_, relative_error(actual, expected, floor));
}

void AdamNoise::next_step() { drift_ = std::exchange(next_drift_, 0); }

void AdamNoise::remove_noise(const std::string& parameter, std::vector<float>& weights) const {
  const auto noisy = noisy_.find(parameter);
  if (noisy == noisy_.end()) return;
  for (std::size_t i = 0; i < std::min(weights.size(), noisy->second.size()); ++i) {
    if (noisy->second[i]) weights[i] = 0;
  }
}

double AdamNoise::allowance() const {
  constexpr double kGrowth = 10;
  return kGrowth * drift_;
}

}  // namespace stagegpt
