// For the definitions of ops: counts of elements and bytes.
#pragma once

#include <cstdint>

#include "common/backend/op.h"

namespace stagegpt {

inline double elements(const Tensor& tensor) { return static_cast<double>(tensor.numel()); }
inline double bytes(const Tensor& tensor) {
  return tensor.defined() ? static_cast<double>(tensor.bytes()) : 0;
}
inline double bytes(const Grad& grad) {
  return grad.wanted() ? (grad.accumulates() ? 2 : 1) * bytes(grad.tensor) : 0;
}
// Bytes of all operands.
template <class... Operands>
double moved(const Operands&... operands) {
  return (bytes(operands) + ...);
}

// Rows of a tensor seen as (N, columns).
inline std::int64_t rows(const Tensor& tensor, std::int64_t columns) {
  return columns == 0 ? 0 : tensor.numel() / columns;
}

}  // namespace stagegpt
