// launch.h for a host compiler: kernels run on the emulator (docs/emulator.md).
#pragma once

#include <functional>
#include <tuple>

#include "stage2_cuda/device_counts.h"
#include "stage2_cuda/emulation/grid.h"
#include "stage2_cuda/emulation/language.h"
#include "stage2_cuda/emulation/tensor_cores.h"
#include "stage2_cuda/emulation/vectors.h"
#include "stage2_cuda/runtime.h"

namespace stagegpt::gpu {

// Submits work to a stream; the host does it in place of the device. If `stream` is null, it is done
// immediately.
void submit(StreamHandle stream, std::function<void()> work);

// Throws KernelError if the launch is invalid or the kernel has an error: immediately or, on a late stream,
// when the host waits for it.
template <auto kernel, class... Args>
void launch(dim3 grid, dim3 block, std::size_t shared_bytes, StreamHandle stream, Args... args) {
  const emulation::KernelCall<kernel> call(args...);
  ++device_counts.kernels;
  submit(stream, [=] {
    emulation::run_grid({.kernel = call.name(),
                         .grid = {grid.x, grid.y, grid.z},
                         .block = {block.x, block.y, block.z},
                         .shared_bytes = shared_bytes,
                         .run_thread = &emulation::KernelCall<kernel>::run_thread,
                         .arguments = &call,
                         .pointers = &emulation::KernelCall<kernel>::pointers});
  });
}

}  // namespace stagegpt::gpu
