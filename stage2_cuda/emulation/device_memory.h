// The memory of the emulated device. Its device addresses are inaccessible: host code that dereferences one
// crashes, as with a GPU. Kernels get the same memory at other addresses (the view), where a guard page
// follows each allocation.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <optional>
#include <span>

#include "stage2_cuda/runtime.h"

namespace stagegpt::gpu::emulation {

class DeviceMemory {
 public:
  // Throws std::runtime_error if it cannot reserve address space, UserError if STAGEGPT_EMULATOR_MEMORY is
  // malformed.
  DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // Aligned to 256 bytes and filled with NaN; nullptr if out of memory.
  void* allocate(std::size_t bytes);
  // `block` is from allocate(), or nullptr; anything else is a failed check, which ends the program.
  void deallocate(void* block) noexcept;
  MemoryInfo info() const;

  // The view's address of a device address in an allocation, or at its end; nullptr for any other address.
  void* view(const void* device) const;
  // The view's address of a range that a copy reads or writes. Throws std::runtime_error if it is not within
  // one allocation. `copy` is the name of the function, for messages.
  void* copied_range(const void* device, std::size_t bytes, const char* copy) const;
  // Throws std::runtime_error if a range is in device memory.
  void check_host_range(const void* host, std::size_t bytes, const char* copy) const;

  // The addresses that kernels use.
  std::span<const char> view_region() const { return {view_, region_bytes_}; }

  // For signal handlers: whether an address is a device address, or is in the view of kernels.
  bool is_device_address(const void* address) const;
  bool is_view_address(const void* address) const;

 private:
  struct Allocation {
    std::size_t bytes = 0;                   // rounded up to 256
    std::size_t pages_begin = 0, pages = 0;  // with the guard page; bytes
  };

  // The bytes from an address to the end of the allocation that contains it, or ends at it.
  std::optional<std::size_t> bytes_behind(const void* device) const;
  std::size_t offset(const void* device) const;
  std::size_t take_pages(std::size_t bytes);
  void give_back_pages(std::size_t begin, std::size_t bytes) noexcept;

  std::size_t total_ = 0, used_ = 0, region_bytes_ = 0;
  char* device_ = nullptr;
  char* view_ = nullptr;
  mutable std::mutex mutex_;
  std::map<std::size_t, Allocation> allocations_;  // by offset in the region
  std::map<std::size_t, std::size_t> free_;        // ranges of pages: offset, bytes
};

// The memory of the single device, which exists until the program ends. The first call reserves its address
// space and installs the handler of memory_faults.h.
DeviceMemory& device_memory();

}  // namespace stagegpt::gpu::emulation
