// Checks the return codes of the CUDA runtime.
#pragma once

#include <cuda_runtime.h>

#include <stdexcept>

#include "common/base/error.h"

namespace stagegpt::gpu {

// How to resolve an error, as the end of its message; empty if unknown.
inline const char* advice_for(cudaError_t code) {
  switch (code) {
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
      return "; this program was not compiled for this device: build with -DCMAKE_CUDA_ARCHITECTURES=native";
    case cudaErrorMemoryAllocation:
      return "; a smaller --batch-size or --block-size needs less memory";
    // Asynchronous errors, which a later call reports.
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorIllegalInstruction:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorHardwareStackError:
    case cudaErrorAssert:
    case cudaErrorLaunchTimeout:
    case cudaErrorLaunchFailure:
      return "; an earlier kernel failed: with CUDA_LAUNCH_BLOCKING=1 the message names it";
    default:
      return "";
  }
}

// Throws std::runtime_error with CUDA's description of the error. `what` names the operation.
inline void check_cuda(cudaError_t code, const char* what) {
  if (code != cudaSuccess) {
    throw std::runtime_error(concat("CUDA: ", what, ": ", cudaGetErrorString(code), " (",
                                    cudaGetErrorName(code), ')', advice_for(code)));
  }
}

}  // namespace stagegpt::gpu
