// Values of tests as elements in device memory, and back.
#pragma once

#include "stage2_cuda/kernels/real.cuh"
#include "tests/emulation/emulated.h"
#include "tests/support/tensors.h"

namespace stagegpt::test {

template <class Real>
std::vector<Real> narrowed(const Values& values) {
  std::vector<Real> narrow;
  for (const double value : values) narrow.push_back(gpu::rounded_to<Real>(static_cast<float>(value)));
  return narrow;
}

template <class Real>
Values widened(const std::vector<Real>& values) {
  Values wide;
  for (const Real value : values) wide.push_back(as_float(value));
  return wide;
}

}  // namespace stagegpt::test
