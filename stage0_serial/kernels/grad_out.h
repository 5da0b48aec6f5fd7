// The destination of a gradient in a kernel.
#pragma once

#include <cstdint>

#include "common/backend/op_types.h"
#include "stage0_serial/kernels/real.h"

namespace stagegpt {

// Converts to false if the gradient is not wanted.
template <class T>
struct GradOut {
  T* data = nullptr;
  bool accumulate = false;

  GradOut() = default;
  explicit GradOut(const Grad& grad)
      : data(grad.wanted() ? grad.tensor.data<T>() : nullptr), accumulate(grad.accumulates()) {}

  explicit operator bool() const { return data != nullptr; }
  void put(std::int64_t i, Computed<T> value) const {
    data[i] = rounded_to<T>(accumulate ? widened(data[i]) + value : value);
  }
};

}  // namespace stagegpt
