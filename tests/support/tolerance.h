// All tolerances of the tests. A result is correct if its norm-wise relative error against the f64 reference
// is at most
//   max(2 · the error of the plain kernel in the same dtype, c·√K·u).
// K is the length of the reduction, u is the unit roundoff of the dtype, and c is a constant for all tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "common/tensor/dtype.h"
#include "tests/support/tensors.h"

namespace stagegpt::test {

inline constexpr double kToleranceFactor = 2;  // c; 1 is too little for AdamW, whose betas are rounded to f32

// Unit roundoff of TF32, whose significand has eleven bits.
inline constexpr double kTf32Roundoff = 0x1p-11;
// An exception to the rule above, for a whole model with factors rounded to TF32: logits, loss, gradients,
// and the losses of some updates. Largest error measured on the emulator: 1.2e-3 (a gradient).
inline constexpr double kTf32ModelLimit = 5e-3;

constexpr double unit_roundoff(DType dtype) {
  if (dtype == DType::bf16) return 0x1p-8;
  return dtype == DType::f64 ? 0x1p-53 : 0x1p-24;
}
// The same exception for activations and factors in bf16, scaled by the ratio of the unit roundoffs.
inline constexpr double kBf16ModelLimit = kTf32ModelLimit * unit_roundoff(DType::bf16) / kTf32Roundoff;

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
  // NaN if a result is NaN: then value() <= limit is false, and the test fails.
  double value() const { return difference_ == 0 ? 0 : std::sqrt(difference_ / reference_); }

 private:
  double difference_ = 0, reference_ = 0;
};

inline double relative_error(const Values& got, const Values& expected) {
  RelativeError error;
  error.add(got, expected);
  return error.value();
}

// The largest error allowed. `plain_error` is the error of the plain kernel in the same dtype. `rounding` is
// the unit roundoff of GEMM's operands, if it is larger than that of the dtype.
inline double error_limit(double plain_error, std::int64_t K, DType dtype, double rounding = 0) {
  return std::max(2 * plain_error, kToleranceFactor * std::sqrt(static_cast<double>(K)) *
                                       std::max(unit_roundoff(dtype), rounding));
}

// The largest error allowed for a plain kernel: half of the dtype's digits are correct. Without this limit, a
// wrong plain kernel would increase the limits of all other kernels.
inline double plain_error_limit(DType dtype) { return std::sqrt(unit_roundoff(dtype)); }

// The step h of central differences in f64, (L(x+h) - L(x-h)) / 2h. Their error is about L'''h²/6 + L·u/h.
// With h = ∛u, both h² and u/h are u^(2/3) = 2e-11. The relative error is about this number, multiplied by
// the larger of |L| and |L'''|, and divided by the gradient.
inline const double kDifferenceStep = std::cbrt(unit_roundoff(DType::f64));
// An exception to the rule above, for the relative error of a gradient against central differences. Largest
// measured error: 2.1e-8 (layernorm of small numbers, whose third derivative is large).
inline constexpr double kGradientCheckLimit = 1e-7;

// For training on several ranks, compared with one process after a few updates. Adam amplifies rounding
// errors of gradients that are almost zero. Largest measured error: 8.9e-6.
inline constexpr double kDividedTrainingLimit = 5e-5;

// For f64, compared with numbers of ten digits in a file. Largest measured error: 1.9e-10.
inline constexpr double kTenDigitsLimit = 1e-9;

}  // namespace stagegpt::test
