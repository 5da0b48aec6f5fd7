// Descriptions of tensors for tma_load() of hopper.h.
#pragma once

#include <cuda.h>

#include <array>
#include <cstdint>

#include "common/tensor/dtype.h"

namespace stagegpt::gpu {

struct TensorMap {
  CUtensorMap map;
};

// extents: (columns, slots, T, B), of which the columns are contiguous. `data` is aligned to 16 bytes, and
// the columns are a multiple of eight. Boxes of 64 columns and 64 rows, in the swizzle of SharedTile, with
// zeros outside. Throws std::runtime_error.
TensorMap make_tensor_map(const Bf16* data, const std::array<std::int64_t, 4>& extents);

}  // namespace stagegpt::gpu
