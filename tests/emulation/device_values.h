// Values of tests as elements in device memory, and back.
#pragma once

#include "common/tensor/half_floats.h"
#include "tests/emulation/emulated.h"
#include "tests/support/tensors.h"

namespace stagegpt::test {

template <class Real>
std::vector<Real> narrowed(const Values& values) {
  std::vector<Real> narrow;
  for (const double value : values) {
    if constexpr (kDTypeOf<Real> == DType::bf16) {
      narrow.push_back({bf16_of_float(static_cast<float>(value))});
    } else {
      narrow.push_back(static_cast<Real>(value));
    }
  }
  return narrow;
}

template <class Real>
Values widened(const std::vector<Real>& values) {
  Values wide;
  for (const Real value : values) wide.push_back(as_float(value));
  return wide;
}

}  // namespace stagegpt::test
