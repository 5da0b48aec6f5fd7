#include "tools/compare/trace_noise.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/measure/relative_error.h"

namespace stagegpt {
namespace {

// One key channel of one sequence: T elements, `stride` apart.
void remove_mean(float* channel, std::int64_t T, std::int64_t stride) {
  double sum = 0;
  for (std::int64_t t = 0; t < T; ++t) sum += channel[t * stride];
  const double mean = sum / static_cast<double>(T);
  for (std::int64_t t = 0; t < T; ++t) channel[t * stride] = static_cast<float>(channel[t * stride] - mean);
}

}  // namespace

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

void remove_softmax_invariant(std::string_view tensor, const std::vector<std::int64_t>& shape,
                              std::vector<float>& values) {
  const std::int64_t width = shape.back(), C = width / 3;
  if (tensor.ends_with(".attn.c_attn.bias") && shape.size() == 1) {
    std::fill(values.begin() + C, values.begin() + 2 * C, 0.0f);
  } else if (tensor.starts_with("the output of h.") && tensor.ends_with(".attn.c_attn (linear)") &&
             shape.size() == 3) {
    const std::int64_t T = shape[1], sequence = T * width;
    for (auto begin = values.begin(); begin != values.end(); begin += sequence) {
      for (std::int64_t c = C; c < 2 * C; ++c) remove_mean(&begin[c], T, width);
    }
  }
}

}  // namespace stagegpt
