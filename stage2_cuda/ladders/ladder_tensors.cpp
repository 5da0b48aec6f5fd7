#include "stage2_cuda/ladders/ladder_tensors.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>

#include "common/profile/peak.h"
#include "common/tensor/half_floats.h"

namespace stagegpt::gpu {
namespace {

// Norm-wise; NaN if an element is NaN, so that no part of an output may be left out.
double relative_error(Backend& backend, const CheckedOutput& output) {
  const std::vector<float> values = floats_to_host(backend, output.out);
  if (std::any_of(values.begin(), values.end(), [](float value) { return std::isnan(value); })) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  double squares = 0, norm = 0;
  std::size_t i = 0;
  for (const std::int64_t row : output.rows) {
    for (std::int64_t column = 0; column < output.columns; ++column, ++i) {
      const double right = output.values[i];
      const double wrong = values[static_cast<std::size_t>(row * output.columns + column)] - right;
      squares += wrong * wrong;
      norm += right * right;
    }
  }
  return std::sqrt(squares / norm);
}

}  // namespace

Tensor RandomInputs::make(DType dtype, Shape shape) {
  const Tensor numbers = random_tensor(backend_, shape, made_++);
  if (dtype == DType::f32) return numbers;
  std::vector<Bf16> rounded;
  for (const float number : to_host<float>(backend_, numbers)) rounded.push_back({bf16_of_float(number)});
  return to_device<Bf16>(backend_, shape, rounded);
}

std::vector<std::int64_t> sampled_rows(std::int64_t rows, std::int64_t most) {
  std::vector<std::int64_t> sampled;
  for (std::int64_t row = 0; row < rows; row += rows / most | 1) sampled.push_back(row);
  return sampled;
}

int number_of_sets(const LadderOptions& options, std::size_t bytes) {
  constexpr std::size_t kColdBytes = std::size_t{256} << 20;
  if (!options.large) return 3;
  return static_cast<int>(2 + (kColdBytes + bytes - 1) / bytes);
}

Ladder ladder_of(std::string name, Backend& backend, std::vector<std::vector<CheckedOutput>> sets) {
  const auto outputs = std::make_shared<const std::vector<std::vector<CheckedOutput>>>(std::move(sets));
  Ladder ladder;
  ladder.name = std::move(name);
  ladder.sets = static_cast<int>(outputs->size());
  ladder.clear = [&backend, outputs] {
    for (const auto& set : *outputs) {
      for (const CheckedOutput& output : set) {
        backend.fill(output.out, std::numeric_limits<double>::quiet_NaN());
      }
    }
    backend.synchronize();
  };
  ladder.error = [&backend, outputs](int set) {
    double greatest = 0;
    for (const CheckedOutput& output : outputs->at(static_cast<std::size_t>(set))) {
      const double error = relative_error(backend, output);
      if (std::isnan(error)) return error;
      greatest = std::max(greatest, error);
    }
    return greatest;
  };
  ladder.tolerance = kF32Tolerance;
  return ladder;
}

void set_bound(Ladder& ladder, double flop, Backend& backend, const LadderOptions& options) {
  const Peak peak = options.peak ? *options.peak : measure_peak(backend, kThoroughGemm);
  ladder.work = flop;
  ladder.unit = "GFLOP/s";
  ladder.bound = peak.flops_per_second;
  ladder.bound_name = peak.name;
}

}  // namespace stagegpt::gpu
