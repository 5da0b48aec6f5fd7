// All tolerances of the tests. A result is correct if its norm-wise relative error against the f64 reference,
// over several seeds, is at most
//   max(2 · the error of the plain kernel in the same dtype, c·√K·u)
// with K the length of the reduction, u the unit roundoff of the dtype and one c for the whole project.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "common/tensor/dtype.h"
#include "tests/support/tensors.h"

namespace stagegpt::test {

inline constexpr double kToleranceFactor = 2;  // c; 1 is too little for AdamW, whose betas are rounded to f32

// Number of seeds over which an error is computed.
inline constexpr int kSeeds = 3;

// Unit roundoff of TF32, whose significand has eleven bits.
inline constexpr double kTf32Roundoff = 0x1p-11;
// The exception to the rule above for what a whole model computes with such factors: logits, loss, gradients,
// and the losses of some updates. Measured on the emulator: 1.2e-3 at most (a gradient).
inline constexpr double kTf32ModelLimit = 5e-3;

inline double unit_roundoff(DType dtype) { return dtype == DType::f64 ? 0x1p-53 : 0x1p-24; }

// Computes ‖got - expected‖ / ‖expected‖ over all vectors that are added.
class RelativeError {
 public:
  void add(const Values& got, const Values& expected) {
    if (got.size() != expected.size()) difference_ = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < std::min(got.size(), expected.size()); ++i) {
      difference_ += (got[i] - expected[i]) * (got[i] - expected[i]);
      reference_ += expected[i] * expected[i];
    }
  }
  // NaN if a result is NaN; comparisons with a limit are then false.
  double value() const { return difference_ == 0 ? 0 : std::sqrt(difference_ / reference_); }

 private:
  double difference_ = 0, reference_ = 0;
};

inline double relative_error(const Values& got, const Values& expected) {
  RelativeError error;
  error.add(got, expected);
  return error.value();
}

// The largest error allowed; `plain_error` is that of the plain kernel in the same dtype. `rounding` is the
// unit roundoff of GEMM's operands, if they are rounded further.
inline double error_limit(double plain_error, std::int64_t K, DType dtype, double rounding = 0) {
  return std::max(2 * plain_error, kToleranceFactor * std::sqrt(static_cast<double>(K)) *
                                       std::max(unit_roundoff(dtype), rounding));
}

// The largest error of a plain kernel: half the digits of the dtype. Without this limit, a broken plain
// kernel would loosen the limits of all others.
inline double plain_error_limit(DType dtype) { return std::sqrt(unit_roundoff(dtype)); }

// Central differences in f64, (L(x+h) - L(x-h)) / 2h, are off by L'''h²/6 + L·u/h. With h = ∛u both terms are
// of the order of u^(2/3) = 2e-11, times the size of L or of its third derivative over that of the gradient.
inline const double kDifferenceStep = std::cbrt(unit_roundoff(DType::f64));
// The exception to the rule above, for the relative error of a gradient against central differences.
// Measured: 2.1e-8 at most (layernorm of small numbers, whose third derivative is large).
inline constexpr double kGradientCheckLimit = 1e-7;

// For training on several ranks after a few updates, against one process: Adam amplifies rounding errors of
// gradients that are almost zero. Measured: 8.9e-6 at most.
inline constexpr double kDividedTrainingLimit = 5e-5;

// For f64 against numbers with ten digits in a file. Measured: 1.9e-10 at most.
inline constexpr double kTenDigitsLimit = 1e-9;

}  // namespace stagegpt::test
