// Keeps freed blocks for reuse, so that after the first step a training step asks the system for nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

namespace stagegpt {

// Where an allocator gets its memory: the host's heap, a GPU.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  // Returns nullptr when there is none left.
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void deallocate(void* block, std::size_t bytes) noexcept = 0;
  // Where the host finds what an address of a block leads to, for AddressSanitizer to watch over it; nullptr
  // where the host cannot see it.
  virtual void* host_view(void* block) const { return block; }
  // How much there is left, where the source can tell.
  virtual std::optional<std::size_t> free_bytes() const { return std::nullopt; }
};

struct MemoryStats {
  std::size_t bytes_in_use = 0;
  std::size_t peak_bytes_in_use = 0;
  std::size_t bytes_reserved = 0;  // taken from the source: in use and kept for reuse
  std::int64_t source_allocations = 0;
};

class CachingAllocator {
 public:
  explicit CachingAllocator(std::unique_ptr<MemorySource> source) : source_(std::move(source)) {}
  ~CachingAllocator();
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  // A block of at least `bytes`, its contents undefined. Throws std::runtime_error when the source has
  // none left, even after everything kept for reuse has been given back.
  void* allocate(std::size_t bytes);
  // `bytes` as given to allocate.
  void deallocate(void* block, std::size_t bytes) noexcept;

  MemoryStats stats() const;
  // What is in use now becomes the peak.
  void forget_peak();

 private:
  void release_free_blocks() noexcept;
  [[noreturn]] void fail(std::size_t bytes) const;
  // Marks what may be touched of a block: its first `bytes`.
  void watch(void* block, std::size_t size, std::size_t bytes) const noexcept;

  mutable std::mutex mutex_;
  std::unique_ptr<MemorySource> source_;
  std::unordered_map<std::size_t, std::vector<void*>> free_blocks_;  // by size class
  MemoryStats stats_;
};

}  // namespace stagegpt
