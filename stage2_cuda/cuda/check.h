// Every return code of CUDA's libraries is looked at here.
#pragma once

#include <cuda_runtime.h>

#include <stdexcept>

#include "common/error.h"

namespace stagegpt::gpu {

// Throws std::runtime_error with CUDA's own words for what went wrong in `what`.
inline void check_cuda(cudaError_t code, const char* what) {
  if (code != cudaSuccess)
    throw std::runtime_error(
        concat("CUDA: ", what, ": ", cudaGetErrorString(code), " (", cudaGetErrorName(code), ')'));
}

}  // namespace stagegpt::gpu
