// The emulated device's memory. Its addresses lead nowhere: host code that follows one outside of a copy
// crashes, as it would with a GPU's. Kernels get the same memory at other addresses, each allocation with a
// page behind it that may not be touched.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>

#include "stage2_cuda/runtime.h"

namespace stagegpt::gpu::emulation {

class DeviceMemory {
 public:
  // Throws std::runtime_error when there is no address space for it, UserError when STAGEGPT_EMULATOR_MEMORY
  // is malformed.
  DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // Aligned to 256 bytes and filled with NaN; nullptr when there is none left.
  void* allocate(std::size_t bytes);
  // `block` from allocate, or nullptr. Anything else is a broken invariant, and ends the program.
  void deallocate(void* block) noexcept;
  MemoryInfo info() const;

  // Where kernels find an address in (or right behind) an allocation; nullptr for any other address.
  void* view(const void* device) const;
  // The same for a range that a copy reads or writes. Throws std::runtime_error unless all of it is in one
  // allocation.
  void* copied_range(const void* device, std::size_t bytes, const char* copy) const;
  // Throws std::runtime_error where a range that should be the host's is in device memory.
  void check_host_range(const void* host, std::size_t bytes, const char* copy) const;

  // For signal handlers: of an address, or of a kernel's view.
  bool is_device_address(const void* address) const;
  bool is_view_address(const void* address) const;

 private:
  struct Allocation {
    std::size_t bytes = 0;                   // rounded up to 256
    std::size_t pages_begin = 0, pages = 0;  // with the guard page; bytes
  };

  // The allocation around offset_ of an address, past its end included; nullptr where there is none.
  const Allocation* find(const void* device, std::size_t& begin) const;
  std::size_t offset(const void* device) const;
  std::size_t take_pages(std::size_t bytes);
  void give_back_pages(std::size_t begin, std::size_t bytes) noexcept;

  std::size_t total_ = 0, used_ = 0, region_bytes_ = 0;
  char* device_ = nullptr;
  char* view_ = nullptr;
  mutable std::mutex mutex_;
  std::map<std::size_t, Allocation> allocations_;  // by their offset in the region
  std::map<std::size_t, std::size_t> free_;        // ranges of pages: offset, bytes
};

// The one device, which lasts as long as the program. The first call reserves its addresses and installs the
// handler of memory_faults.h.
DeviceMemory& device_memory();

}  // namespace stagegpt::gpu::emulation
