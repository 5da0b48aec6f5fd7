#include "stage2_cuda/emulation/grid.h"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>

#include "stage2_cuda/emulation/device_memory.h"
#include "stage2_cuda/emulation/language.h"
#include "stage2_cuda/emulation/vectors.h"

namespace stagegpt::gpu::emulation {
namespace {

template <class... Parts>
void check_launch(bool condition, const Launch& launch, const Parts&... parts) {
  if (!condition) throw KernelError(concat("kernel ", launch.kernel, ": ", parts...));
}

void check_launch(const Launch& launch) {
  const Index grid = launch.grid, block = launch.block;
  if (current_block != nullptr) fail("launches kernel ", launch.kernel);
  check_launch(grid.x > 0 && grid.y > 0 && grid.z > 0, launch, "a grid of ", to_string(grid), " blocks");
  check_launch(block.x > 0 && block.y > 0 && block.z > 0, launch, "blocks of ", to_string(block), " threads");
  check_launch(grid.x <= 0x7FFFFFFF && grid.y <= 65535 && grid.z <= 65535, launch, "a grid of ",
               to_string(grid), " blocks, expected at most (2147483647,65535,65535)");
  check_launch(
      block.x <= 1024 && block.y <= 1024 && block.z <= 64 && block.x * block.y * block.z <= kMaxBlockThreads,
      launch, "blocks of ", to_string(block), " threads, expected at most 1024, and at most 64 along z");
  check_launch(launch.shared_bytes <= shared_bytes_limit(), launch, launch.shared_bytes,
               " bytes of dynamic shared memory, more than the ", shared_bytes_limit(), " of a block");
}

// Runs the blocks of a launch; each OS thread takes the next blocks when it is free.
void run_blocks(const Launch& launch) {
  const std::uint64_t blocks = std::uint64_t{launch.grid.x} * launch.grid.y * launch.grid.z;
  std::atomic<std::uint64_t> next = 0;
  std::atomic<bool> failed = false;
  std::mutex mutex;
  std::exception_ptr error;
  // Takes `some` blocks at a time, until all are done or one has failed.
  const auto run_some = [&](std::uint64_t some) noexcept {
    try {
      Block& block = Block::of_this_thread();
      for (std::uint64_t i = next.fetch_add(some); i < blocks; i = next.fetch_add(some)) {
        for (std::uint64_t end = std::min(i + some, blocks); i < end && !failed; ++i) {
          block.run(launch, index_of(i, launch.grid));
        }
      }
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
      failed = true;
    }
  };
  const auto team = static_cast<int>(std::min(blocks, static_cast<std::uint64_t>(threads())));
  if (team == 1) {
    run_some(blocks);
  } else {
    const std::uint64_t some =
        std::clamp(blocks / (16 * static_cast<std::uint64_t>(team)), std::uint64_t{1}, std::uint64_t{1024});
#pragma omp parallel num_threads(team)
    run_some(some);
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace

void run_grid(Launch launch) {
  check_launch(launch);
  launch.order = thread_order();
  launch.number = next_launch();
  if (launch_observer != nullptr) launch_observer->begin_launch(launch);
  run_blocks(launch);
  if (launch_observer != nullptr) launch_observer->end_launch();
}

void* kernel_view(const char* kernel, std::size_t index, const void* device) {
  if (device == nullptr) return nullptr;
  void* view = device_memory().view(device);
  if (view == nullptr) {
    throw KernelError(concat("kernel ", kernel, ": argument ", index, " points to ", device,
                             ", which is not in device memory"));
  }
  return view;
}

std::string kernel_name(std::string_view signature) {
  constexpr std::string_view kBegin = "kernel = ";
  const std::size_t begin = signature.find(kBegin);
  if (begin == std::string_view::npos) return std::string(signature);
  std::string_view name = signature.substr(begin + kBegin.size());
  if (name.ends_with(']')) name.remove_suffix(1);
  std::size_t name_begin = 0, depth = 0;
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (name[i] == '<') ++depth;
    if (name[i] == '>') --depth;
    if (name[i] == ':' && depth == 0) name_begin = i + 1;
  }
  return std::string(name.substr(name_begin));
}

void fail_alignment(const char* call, std::int64_t i, std::size_t bytes) {
  fail(call, " at index ", i, ": misaligned address, ", bytes, " bytes are needed");
}

void fail_width(const char* call, int width, Where where) {
  fail(call, " in ", to_string(where), " with a width of ", width, ", expected a power of two up to 32");
}

}  // namespace stagegpt::gpu::emulation
