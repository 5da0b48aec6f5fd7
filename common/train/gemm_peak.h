// What a machine of unknown peak is measured by: its fastest product of square matrices.
#pragma once

#include <cstdint>

#include "common/backend/backend.h"

namespace stagegpt {

struct GemmPeak {
  double flops_per_second = 0;
  std::int64_t n = 0;  // of the n×n matrices
};

// Products in f32 through the backend, n = 256, 512, … until one takes 0.05 s; the best of five of each size.
// Takes less than a second where matrix products are fast, some seconds where they are plain loops.
GemmPeak measure_gemm_peak(Backend& backend);

}  // namespace stagegpt
