#include "common/tensor/caching_allocator.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <functional>
#include <string_view>
#include <utility>

#include "common/base/error.h"
#include "common/tensor/poison.h"

namespace stagegpt {
namespace {

// The size of the block for a request: the next of eight sizes between two powers of two. At most an eighth
// of a block is wasted, and a freed block can be reused for a tensor of nearly the same size.
std::size_t size_class(std::size_t bytes) {
  constexpr std::size_t kSmallest = 256;
  const std::size_t wanted = std::max(bytes, kSmallest);
  const std::size_t step = std::max(std::bit_floor(wanted) / 8, kSmallest);
  return (wanted + step - 1) / step * step;
}

}  // namespace

bool CachingAllocator::keeps_blocks() {
  const char* const value = std::getenv("STAGEGPT_ALLOCATOR");
  const std::string_view mode = value == nullptr ? "caching" : value;
  if (mode != "caching" && mode != "direct")
    user_error("STAGEGPT_ALLOCATOR: expected 'caching' or 'direct', got '", mode, "'");
  return mode == "caching";
}

CachingAllocator::CachingAllocator(std::unique_ptr<MemorySource> source)
    : source_(std::move(source)), keeps_blocks_(keeps_blocks()) {}

std::size_t CachingAllocator::block_size(std::size_t bytes) const {
  return keeps_blocks_ ? size_class(bytes) : std::max<std::size_t>(bytes, 1);
}

CachingAllocator::~CachingAllocator() { release_free_blocks(); }

void* CachingAllocator::allocate(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const std::size_t size = block_size(bytes);
  void* block = nullptr;
  if (auto& free = free_blocks_[size]; !free.empty()) {
    block = free.back();
    free.pop_back();
  } else {
    block = source_->allocate(size);
    if (block == nullptr && !noted_) {
      release_free_blocks();
      block = source_->allocate(size);
    }
    if (block == nullptr) fail(bytes);
    stats_.bytes_reserved += size;
    ++stats_.source_allocations;
  }
  if (noted_) noted_->blocks.push_back({block, size});
  watch(block, size, bytes);
  stats_.bytes_in_use += size;
  stats_.peak_bytes_in_use = std::max(stats_.peak_bytes_in_use, stats_.bytes_in_use);
  if (noted_) noted_->peak_bytes = std::max(noted_->peak_bytes, stats_.bytes_in_use);
  return block;
}

void CachingAllocator::fail(std::size_t bytes) const {
  const std::optional<std::size_t> free = source_->free_bytes();
  throw OutOfMemory(concat("out of memory: ", bytes, " bytes asked for, ", stats_.bytes_in_use, " in use",
                           free ? concat(", ", *free, " free on the device") : "",
                           "; a smaller --batch-size or --block-size needs less"));
}

void CachingAllocator::deallocate(void* block, std::size_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  const std::size_t size = block_size(bytes);
  stats_.bytes_in_use -= size;
  if (!keeps_blocks_) return return_to_source(block, size);
  watch(block, size, 0);
  free_blocks_[size].push_back(block);
}

bool CachingAllocator::is_free(const Block& block) {
  return std::ranges::find(free_blocks_[block.bytes], block.memory) != free_blocks_[block.bytes].end();
}

void CachingAllocator::start_noting() {
  const std::lock_guard lock(mutex_);
  noted_ = Noted{.blocks = {}, .bytes_before = stats_.bytes_in_use, .peak_bytes = stats_.bytes_in_use};
}

CachingAllocator::Noted CachingAllocator::stop_noting() {
  const std::lock_guard lock(mutex_);
  Noted noted = std::exchange(noted_, std::nullopt).value();
  std::vector<Block>& blocks = noted.blocks;
  std::ranges::sort(blocks, std::less(), &Block::memory);
  const auto repeated = std::ranges::unique(blocks, std::equal_to(), &Block::memory);
  blocks.erase(repeated.begin(), repeated.end());
  std::erase_if(blocks, [&](const Block& block) { return !is_free(block); });
  return noted;
}

bool CachingAllocator::take(const Noted& noted) {
  const std::lock_guard lock(mutex_);
  if (!std::ranges::all_of(noted.blocks, [&](const Block& block) { return is_free(block); })) return false;
  // The work does not use all blocks at the same time.
  stats_.peak_bytes_in_use =
      std::max(stats_.peak_bytes_in_use, stats_.bytes_in_use + noted.peak_bytes - noted.bytes_before);
  for (const auto& [memory, bytes] : noted.blocks) {
    std::erase(free_blocks_[bytes], memory);
    watch(memory, bytes, bytes);
    stats_.bytes_in_use += bytes;
  }
  return true;
}

void CachingAllocator::give_back(const Noted& noted) noexcept {
  for (const auto& [memory, bytes] : noted.blocks) deallocate(memory, bytes);
}

MemoryStats CachingAllocator::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void CachingAllocator::forget_peak() {
  const std::lock_guard lock(mutex_);
  stats_.peak_bytes_in_use = stats_.bytes_in_use;
}

void CachingAllocator::watch(void* block, std::size_t size, std::size_t bytes) const noexcept {
  void* view = source_->host_view(block);
  if (view == nullptr) return;
  poison(view, size);
  unpoison(view, bytes);
}

void CachingAllocator::return_to_source(void* block, std::size_t size) noexcept {
  watch(block, size, size);
  source_->deallocate(block, size);
  stats_.bytes_reserved -= size;
}

void CachingAllocator::release() noexcept {
  const std::lock_guard lock(mutex_);
  if (!noted_) release_free_blocks();
}

void CachingAllocator::release_free_blocks() noexcept {
  for (auto& [size, blocks] : free_blocks_) {
    for (void* block : blocks) return_to_source(block, size);
    blocks.clear();
  }
}

}  // namespace stagegpt
