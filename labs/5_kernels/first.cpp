// The first check of lab 5 (HANDOUT.md, step 0): a launch of your own, and with it warp_sum. It compiles one
// kernel and the emulator.
#include <cstdio>
#include <vector>

#include "stage2_cuda/emulation/barriers.cpp"
#include "stage2_cuda/emulation/block.cpp"
#include "stage2_cuda/emulation/device_memory.cpp"
#include "stage2_cuda/emulation/fibers.cpp"
#include "stage2_cuda/emulation/grid.cpp"
#include "stage2_cuda/emulation/hopper.cpp"
#include "stage2_cuda/emulation/memory_faults.cpp"
#include "stage2_cuda/emulation/products.cpp"
#include "stage2_cuda/emulation/runtime.cpp"
#include "stage2_cuda/emulation/settings.cpp"
#include "stage2_cuda/emulation/shared_memory.cpp"
#include "stage2_cuda/emulation/streams.cpp"
#include "stage2_cuda/emulation/tensor_cores.cpp"
#include "stage2_cuda/emulation/tiles.cpp"
#include "stage2_cuda/emulation/vector_clock.cpp"
#include "stage2_cuda/emulation/warp.cpp"
#include "stage2_cuda/kernels/reduce.cuh"

using namespace stagegpt::gpu;

// out[i] = the sum of the 32 elements that the warp of thread i has read.
__global__ void sums_of_warps(float* out, const float* in, std::int64_t n) {
  const std::int64_t i = thread_index();
  const float sum = warp_sum(i < n ? in[i] : 0.0f);
  if (i < n) out[i] = sum;
}

// Runs sums_of_warps on the device, with n elements and 64 threads in a block. The default stream is nullptr.
void run_on_device(float* out, const float* in, std::int64_t n) {
  const std::size_t bytes = static_cast<std::size_t>(n) * sizeof(float);
  auto* const device_in = static_cast<float*>(allocate(bytes));
  auto* const device_out = static_cast<float*>(allocate(bytes));
  // Yours, three statements: copy_to_device(to, from, bytes, stream); launch<kernel>(grid, block,
  // shared_bytes, stream, arguments…); copy_to_host(to, from, bytes, stream). How many blocks have a thread
  // for each of n elements?
  deallocate(device_in);
  deallocate(device_out);
}

int main() {
  constexpr std::int64_t n = 100;
  std::vector<float> in(n, 1), out(n, -1);
  try {
    run_on_device(out.data(), in.data(), n);
  } catch (const std::exception& error) {
    std::puts(error.what());
    return 1;
  }
  for (std::size_t i = 0; i < n; ++i) {
    const float expected = i < 96 ? 32 : 4;
    if (out[i] == expected) continue;
    std::printf("element %zu is %g, not %g%s\n", i, out[i], expected,
                out[i] == -1       ? ": the host's memory was not written"
                : out[i] != out[i] ? ": no thread has written it"
                                   : "");
    return 1;
  }
  std::puts("right: the launch, both copies, and warp_sum");
}
