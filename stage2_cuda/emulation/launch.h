// launch.h for a host compiler: kernels run on the emulator (docs/emulator.md).
#pragma once

#include <tuple>

#include "stage2_cuda/emulation/grid.h"
#include "stage2_cuda/emulation/language.h"
#include "stage2_cuda/emulation/vectors.h"
#include "stage2_cuda/runtime.h"

namespace stagegpt::gpu {

// Returns when the kernel is done. Throws KernelError where the launch or the kernel is at fault.
template <auto kernel, class... Args>
void launch(dim3 grid, dim3 block, std::size_t shared_bytes, StreamHandle, Args... args) {
  emulation::KernelCall<kernel> call(args...);
  emulation::run_grid({.kernel = call.name(),
                       .grid = {grid.x, grid.y, grid.z},
                       .block = {block.x, block.y, block.z},
                       .shared_bytes = shared_bytes,
                       .run_thread = &emulation::KernelCall<kernel>::run_thread,
                       .arguments = &call});
}

}  // namespace stagegpt::gpu
