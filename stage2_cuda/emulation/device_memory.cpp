#include "stage2_cuda/emulation/device_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "common/base/error.h"
#include "common/tensor/poison.h"
#include "stage2_cuda/emulation/memory_faults.h"

namespace stagegpt::gpu::emulation {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kAlignment = 256;
constexpr int kUnfilled = 0xFF;  // NaN as a float

std::size_t round_up(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }

constexpr const char* kVariable = "STAGEGPT_EMULATOR_MEMORY";

std::size_t total_bytes() {
  const char* value = std::getenv(kVariable);
  if (value == nullptr) {
    return static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) *
           static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  }
  const std::string_view text = value;
  std::size_t bytes = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bytes);
  if (error != std::errc() || end != text.data() + text.size() || bytes > std::size_t{1} << 43) {
    user_error(kVariable, ": expected a number of bytes, got \"", text, '"');
  }
  return bytes;
}

char* reserve(std::size_t bytes) {
  void* region = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (region == MAP_FAILED) {
    throw std::runtime_error(concat("cannot reserve ", bytes,
                                    " bytes of address space for the emulated GPU: ", std::strerror(errno),
                                    "; set ", kVariable, " to fewer bytes"));
  }
  return static_cast<char*>(region);
}

bool overlaps(const char* begin, std::size_t bytes, const void* range, std::size_t range_bytes) {
  const auto a = reinterpret_cast<std::uintptr_t>(begin), b = reinterpret_cast<std::uintptr_t>(range);
  return a < b + range_bytes && b < a + bytes;
}

}  // namespace

DeviceMemory::DeviceMemory() : total_(total_bytes()) {
  // More than total_: a small block takes a page and a guard page, and freed blocks leave gaps.
  region_bytes_ = round_up(4 * total_ + (std::size_t{1} << 30), kPage);
  device_ = reserve(region_bytes_);
  view_ = reserve(region_bytes_);
  free_[0] = region_bytes_;
}

void* DeviceMemory::allocate(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (bytes > total_) return nullptr;
  const std::size_t size = round_up(std::max(bytes, std::size_t{1}), kAlignment);
  if (size > total_ - used_) return nullptr;
  const std::size_t pages = round_up(size, kPage) + kPage;
  const std::size_t pages_begin = take_pages(pages);
  if (pages_begin == region_bytes_) return nullptr;
  if (mprotect(view_ + pages_begin, pages - kPage, PROT_READ | PROT_WRITE) != 0) {
    give_back_pages(pages_begin, pages);
    return nullptr;
  }
  const std::size_t begin = pages_begin + pages - kPage - size;
  std::memset(view_ + begin, kUnfilled, size);
  allocations_[begin] = {.bytes = size, .pages_begin = pages_begin, .pages = pages};
  used_ += size;
  return device_ + begin;
}

void DeviceMemory::deallocate(void* block) noexcept {
  if (block == nullptr) return;
  const std::lock_guard lock(mutex_);
  const auto found = allocations_.find(offset(block));
  check(found != allocations_.end(), "deallocate: ", block, " was not allocated");
  const auto [size, pages_begin, pages] = found->second;
  unpoison(view_ + pages_begin, pages);
  // Replaces the pages by new ones, which are empty and inaccessible.
  check(mmap(view_ + pages_begin, pages, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
             -1, 0) != MAP_FAILED,
        "deallocate: mmap failed");
  give_back_pages(pages_begin, pages);
  used_ -= size;
  allocations_.erase(found);
}

MemoryInfo DeviceMemory::info() const {
  const std::lock_guard lock(mutex_);
  return {.free = total_ - used_, .total = total_};
}

std::size_t DeviceMemory::take_pages(std::size_t bytes) {
  for (auto range = free_.begin(); range != free_.end(); ++range) {
    const auto [begin, free_bytes] = *range;
    if (free_bytes < bytes) continue;
    free_.erase(range);
    if (free_bytes > bytes) free_[begin + bytes] = free_bytes - bytes;
    return begin;
  }
  return region_bytes_;
}

void DeviceMemory::give_back_pages(std::size_t begin, std::size_t bytes) noexcept {
  auto range = free_.emplace(begin, bytes).first;
  const auto next = std::next(range);
  if (next != free_.end() && range->first + range->second == next->first) {
    range->second += next->second;
    free_.erase(next);
  }
  if (range == free_.begin()) return;
  const auto previous = std::prev(range);
  if (previous->first + previous->second != range->first) return;
  previous->second += range->second;
  free_.erase(range);
}

std::size_t DeviceMemory::offset(const void* device) const {
  return reinterpret_cast<std::uintptr_t>(device) - reinterpret_cast<std::uintptr_t>(device_);
}

std::optional<std::size_t> DeviceMemory::bytes_behind(const void* device) const {
  const auto after = allocations_.upper_bound(offset(device));
  if (after == allocations_.begin()) return std::nullopt;
  const auto& [begin, allocation] = *std::prev(after);
  const std::size_t before = offset(device) - begin;
  if (before > allocation.bytes) return std::nullopt;
  return allocation.bytes - before;
}

void* DeviceMemory::view(const void* device) const {
  const std::lock_guard lock(mutex_);
  return bytes_behind(device) ? view_ + offset(device) : nullptr;
}

void* DeviceMemory::copied_range(const void* device, std::size_t bytes, const char* copy) const {
  const std::lock_guard lock(mutex_);
  const std::optional<std::size_t> behind = bytes_behind(device);
  if (!behind) throw std::runtime_error(concat(copy, ": ", device, " is not in device memory"));
  if (bytes > *behind) {
    throw std::runtime_error(concat(copy, ": ", bytes, " bytes at ", device,
                                    " exceed their allocation: it ends after ", *behind, " bytes"));
  }
  return view_ + offset(device);
}

void DeviceMemory::check_host_range(const void* host, std::size_t bytes, const char* copy) const {
  if (overlaps(device_, region_bytes_, host, bytes) || overlaps(view_, region_bytes_, host, bytes)) {
    throw std::runtime_error(concat(copy, ": ", host, " is in device memory, expected host memory"));
  }
}

bool DeviceMemory::is_device_address(const void* address) const {
  return overlaps(device_, region_bytes_, address, 1);
}

bool DeviceMemory::is_view_address(const void* address) const {
  return overlaps(view_, region_bytes_, address, 1);
}

DeviceMemory& device_memory() {
  // Never destroyed, because static objects that own blocks may be destroyed later.
  static DeviceMemory* memory = [] {
    auto* made = new DeviceMemory();
    explain_memory_faults(*made);
    return made;
  }();
  return *memory;
}

}  // namespace stagegpt::gpu::emulation
