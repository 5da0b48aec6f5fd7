// Keeps freed blocks for reuse, so that training steps after the first allocate nothing from the system.
//
// With STAGEGPT_ALLOCATOR=direct in the environment it keeps nothing: each block is the source's own, of
// exactly the size that was asked for. Then tools that watch the source's blocks, such as compute-sanitizer,
// find what is read or written beside a tensor or after its end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <unordered_map>
#include <vector>

namespace stagegpt {

// Where an allocator gets its memory: for example the host's heap or a GPU.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  // Returns nullptr if there is not enough memory.
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void deallocate(void* block, std::size_t bytes) noexcept = 0;
  // The address at which the host can access the block, so that AddressSanitizer can check accesses; nullptr
  // if the host cannot access it.
  virtual void* host_view(void* block) const { return block; }
  // The free memory, if the source knows it.
  virtual std::optional<std::size_t> free_bytes() const { return std::nullopt; }
};

struct MemoryStats {
  std::size_t bytes_in_use = 0;
  std::size_t peak_bytes_in_use = 0;
  std::size_t bytes_reserved = 0;  // taken from the source: in use and kept for reuse
  std::int64_t source_allocations = 0;
};

// The source has not as much memory as was asked for.
struct OutOfMemory : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class CachingAllocator {
 public:
  // Throws UserError if the environment holds another value than "caching" or "direct".
  explicit CachingAllocator(std::unique_ptr<MemorySource> source);
  ~CachingAllocator();
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  // A block of at least `bytes`; its contents are undefined. Throws OutOfMemory if the source has not enough
  // memory even after all blocks that are kept for reuse have been returned to it.
  void* allocate(std::size_t bytes);
  // `bytes` must be what was passed to allocate().
  void deallocate(void* block, std::size_t bytes) noexcept;

  // Returns the blocks that are kept for reuse to the source; none while blocks are noted.
  void release() noexcept;

  // For work that is recorded with the addresses of its blocks, and done again later. start_noting() begins
  // to note the blocks that are allocated; until stop_noting(), no block is returned to the source. The
  // latter returns those that are free again. Before the work is done again, take() takes them like
  // allocate(); it takes none, and returns false, if one of them is used otherwise or was returned to the
  // source. Then give_back() frees them.
  struct Block {
    void* memory = nullptr;
    std::size_t bytes = 0;
  };
  struct Noted {
    std::vector<Block> blocks;
    std::size_t bytes_before = 0, peak_bytes = 0;  // in use before the work, and at most during it
  };
  void start_noting();
  Noted stop_noting();
  bool take(const Noted& noted);
  void give_back(const Noted& noted) noexcept;
  // False with STAGEGPT_ALLOCATOR=direct: then there is never a free block. Throws as the constructor does.
  static bool keeps_blocks();

  MemoryStats stats() const;
  // Sets the peak to the memory that is in use now.
  void forget_peak();

 private:
  // The size of a block for so many bytes.
  std::size_t block_size(std::size_t bytes) const;
  void return_to_source(void* block, std::size_t size) noexcept;
  bool is_free(const Block& block);
  void release_free_blocks() noexcept;
  [[noreturn]] void fail(std::size_t bytes) const;
  // Tells AddressSanitizer that only the first `bytes` of a block may be accessed.
  void watch(void* block, std::size_t size, std::size_t bytes) const noexcept;

  mutable std::mutex mutex_;
  std::unique_ptr<MemorySource> source_;
  bool keeps_blocks_;
  std::unordered_map<std::size_t, std::vector<void*>> free_blocks_;  // by size class
  std::optional<Noted> noted_;
  MemoryStats stats_;
};

}  // namespace stagegpt
