#include "common/tensor/caching_allocator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "common/base/error.h"
#include "stage0_serial/host_memory.h"
#include "tests/support/refusal.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace stagegpt::test {
namespace {

// A heap of limited size that counts the memory that it has allocated.
class LimitedMemory : public MemorySource {
 public:
  struct Account {
    std::size_t limit = 0;
    std::size_t bytes = 0;
    std::size_t blocks = 0;
    int calls = 0;
  };

  explicit LimitedMemory(Account& account) : account_(account) {}
  void* allocate(std::size_t bytes) override {
    ++account_.calls;
    if (account_.bytes + bytes > account_.limit) return nullptr;
    account_.bytes += bytes;
    ++account_.blocks;
    return std::malloc(bytes);
  }
  void deallocate(void* block, std::size_t bytes) noexcept override {
    account_.bytes -= bytes;
    --account_.blocks;
    std::free(block);
  }

 private:
  Account& account_;
};

class CachingAllocatorTest : public testing::Test {
 protected:
  void limit(std::size_t bytes) { account_.limit = bytes; }

  LimitedMemory::Account account_{.limit = std::size_t{1} << 30};
  std::unique_ptr<CachingAllocator> allocator_ =
      std::make_unique<CachingAllocator>(std::make_unique<LimitedMemory>(account_));
};

const std::vector<std::size_t> kSizes = {1, 100, 256, 257, 1000, 4096, 5000, 123456, 1 << 20};

TEST_F(CachingAllocatorTest, the_second_round_asks_the_source_for_nothing) {
  auto round = [&] {
    std::vector<void*> blocks;
    for (const std::size_t size : kSizes) blocks.push_back(allocator_->allocate(size));
    for (std::size_t i = 0; i < kSizes.size(); ++i) allocator_->deallocate(blocks[i], kSizes[i]);
  };
  round();
  const std::int64_t allocations = allocator_->stats().source_allocations;
  EXPECT_EQ(allocations, static_cast<std::int64_t>(kSizes.size()));
  round();
  round();
  EXPECT_EQ(allocator_->stats().source_allocations, allocations);
  EXPECT_EQ(account_.calls, allocations);
}

TEST(DirectAllocator, asks_the_source_for_each_block_and_keeps_none) {
  LimitedMemory::Account account{.limit = 1000};
  setenv("STAGEGPT_ALLOCATOR", "direct", 1);
  CachingAllocator allocator(std::make_unique<LimitedMemory>(account));
  unsetenv("STAGEGPT_ALLOCATOR");
  for (int round = 0; round < 3; ++round) {
    void* const block = allocator.allocate(7);
    EXPECT_EQ(account.bytes, 7u);
    EXPECT_EQ(allocator.stats().bytes_in_use, 7u);
    allocator.deallocate(block, 7);
    EXPECT_EQ(account.bytes, 0u);
    EXPECT_EQ(allocator.stats().bytes_in_use + allocator.stats().bytes_reserved, 0u);
    EXPECT_EQ(allocator.stats().source_allocations, round + 1);
  }
  allocator.deallocate(allocator.allocate(0), 0);
  EXPECT_THROW(allocator.allocate(1001), std::runtime_error);
}

TEST(DirectAllocator, is_what_the_environment_asks_for) {
  LimitedMemory::Account account;
  setenv("STAGEGPT_ALLOCATOR", "directly", 1);
  EXPECT_EQ(refusal([&] { CachingAllocator allocator(std::make_unique<LimitedMemory>(account)); }),
            "STAGEGPT_ALLOCATOR: expected 'caching' or 'direct', got 'directly'");
  unsetenv("STAGEGPT_ALLOCATOR");
}

TEST_F(CachingAllocatorTest, has_nothing_at_first) {
  const MemoryStats stats = allocator_->stats();
  EXPECT_EQ(stats.bytes_in_use, 0u);
  EXPECT_EQ(stats.peak_bytes_in_use, 0u);
  EXPECT_EQ(stats.bytes_reserved, 0u);
  EXPECT_EQ(stats.source_allocations, 0);
}

TEST_F(CachingAllocatorTest, blocks_in_use_are_distinct) {
  std::set<void*> blocks;
  for (int i = 0; i < 10; ++i) blocks.insert(allocator_->allocate(100));
  EXPECT_EQ(blocks.size(), 10);
  for (void* block : blocks) allocator_->deallocate(block, 100);
}

TEST_F(CachingAllocatorTest, blocks_have_room_for_what_was_asked) {
  std::size_t reserved = 0;
  std::vector<void*> blocks;
  for (const std::size_t size : kSizes) {
    void* block = blocks.emplace_back(allocator_->allocate(size));
    const std::size_t got = allocator_->stats().bytes_reserved - reserved;
    reserved += got;
    EXPECT_GE(got, size);
    EXPECT_LE(got,
              std::max<std::size_t>(size + size / 8, size + 256));  // wastes an eighth, or a smallest block
    std::fill_n(static_cast<char*>(block), size, 'x');
  }
  for (std::size_t i = 0; i < kSizes.size(); ++i) allocator_->deallocate(blocks[i], kSizes[i]);
}

TEST_F(CachingAllocatorTest, nearly_equal_sizes_share_a_block) {
  void* block = allocator_->allocate(1'000'000);
  allocator_->deallocate(block, 1'000'000);
  void* again = allocator_->allocate(990'000);
  EXPECT_EQ(again, block);
  EXPECT_EQ(allocator_->stats().source_allocations, 1);
  allocator_->deallocate(again, 990'000);
}

TEST_F(CachingAllocatorTest, counts_bytes_in_use_their_peak_and_what_is_reserved) {
  void* a = allocator_->allocate(1024);
  void* b = allocator_->allocate(2048);
  EXPECT_EQ(allocator_->stats().bytes_in_use, 3072);
  allocator_->deallocate(a, 1024);
  EXPECT_EQ(allocator_->stats().bytes_in_use, 2048);
  EXPECT_EQ(allocator_->stats().peak_bytes_in_use, 3072);
  EXPECT_EQ(allocator_->stats().bytes_reserved, 3072);
  allocator_->deallocate(b, 2048);
  EXPECT_EQ(allocator_->stats().bytes_in_use, 0);
  EXPECT_EQ(allocator_->stats().bytes_reserved, 3072);
}

TEST_F(CachingAllocatorTest, counts_the_peak_anew_from_what_is_in_use) {
  void* a = allocator_->allocate(1024);
  allocator_->deallocate(allocator_->allocate(4096), 4096);
  allocator_->forget_peak();
  EXPECT_EQ(allocator_->stats().peak_bytes_in_use, 1024);
  void* b = allocator_->allocate(2048);
  EXPECT_EQ(allocator_->stats().peak_bytes_in_use, 3072);
  allocator_->deallocate(b, 2048);
  allocator_->deallocate(a, 1024);
}

class NotedBlocks : public CachingAllocatorTest {
 protected:
  // Notes three blocks; two are free again, of which one had two uses.
  void SetUp() override {
    void* const before = allocator_->allocate(4096);
    allocator_->start_noting();
    for (int use = 0; use < 2; ++use) allocator_->deallocate(allocator_->allocate(1024), 1024);
    allocator_->deallocate(allocator_->allocate(2048), 2048);
    kept_ = allocator_->allocate(512);
    allocator_->deallocate(before, 4096);
    noted_ = allocator_->stop_noting();
  }
  void TearDown() override { allocator_->deallocate(kept_, 512); }
  std::size_t in_use() const { return allocator_->stats().bytes_in_use; }

  void* kept_ = nullptr;
  CachingAllocator::Noted noted_;
};

TEST_F(NotedBlocks, are_those_allocated_meanwhile_that_are_free_again) {
  std::set<std::size_t> sizes;
  for (const auto& block : noted_.blocks) sizes.insert(block.bytes);
  EXPECT_EQ(noted_.blocks.size(), 2u);
  EXPECT_EQ(sizes, (std::set<std::size_t>{1024, 2048}));
  allocator_->deallocate(allocator_->allocate(1024), 1024);  // is not noted any more
  EXPECT_EQ(noted_.blocks.size(), 2u);
}

TEST_F(NotedBlocks, are_taken_and_given_back_together) {
  allocator_->forget_peak();
  ASSERT_TRUE(allocator_->take(noted_));
  EXPECT_EQ(in_use(), 512u + 1024 + 2048);
  EXPECT_EQ(allocator_->stats().peak_bytes_in_use, 512u + 2048) << "they were used one after the other";
  EXPECT_FALSE(allocator_->take(noted_)) << "they are in use";
  void* const other = allocator_->allocate(1024);
  for (const auto& block : noted_.blocks) EXPECT_NE(other, block.memory);
  allocator_->deallocate(other, 1024);
  allocator_->give_back(noted_);
  EXPECT_EQ(in_use(), 512u);
  EXPECT_EQ(allocator_->stats().peak_bytes_in_use, 512u + 2 * 1024 + 2048);
  ASSERT_TRUE(allocator_->take(noted_));
  allocator_->give_back(noted_);
}

TEST_F(NotedBlocks, are_not_taken_if_one_is_in_use) {
  void* const other = allocator_->allocate(2048);
  EXPECT_FALSE(allocator_->take(noted_));
  EXPECT_EQ(in_use(), 512u + 2048) << "none was taken";
  allocator_->deallocate(other, 2048);
  EXPECT_TRUE(allocator_->take(noted_));
  allocator_->give_back(noted_);
}

TEST_F(NotedBlocks, are_not_taken_after_the_source_has_got_them_back) {
  limit(account_.bytes);
  EXPECT_THROW(allocator_->allocate(account_.bytes + 1), std::runtime_error);
  EXPECT_FALSE(allocator_->take(noted_));
}

// Work that is being recorded may have used every free block.
TEST_F(NotedBlocks, are_not_returned_to_the_source_while_they_are_noted) {
  limit(account_.bytes);
  allocator_->start_noting();
  EXPECT_THROW(allocator_->allocate(3072), std::runtime_error);
  allocator_->stop_noting();
  EXPECT_TRUE(allocator_->take(noted_));
  allocator_->give_back(noted_);
}

TEST_F(CachingAllocatorTest, out_of_memory_gives_back_what_was_kept_and_tries_again) {
  limit(4096);
  void* small = allocator_->allocate(2048);
  allocator_->deallocate(small, 2048);
  void* large = allocator_->allocate(4096);  // fits only without the block of 2048
  EXPECT_NE(large, nullptr);
  EXPECT_EQ(account_.blocks, 1);
  EXPECT_EQ(allocator_->stats().bytes_reserved, 4096);
  allocator_->deallocate(large, 4096);
}

TEST_F(CachingAllocatorTest, out_of_memory_for_good_throws_and_breaks_nothing) {
  limit(4096);
  void* block = allocator_->allocate(2048);
  EXPECT_THROW(allocator_->allocate(4096), std::runtime_error);
  EXPECT_EQ(allocator_->stats().bytes_in_use, 2048);
  EXPECT_EQ(allocator_->stats().bytes_reserved, 2048);
  void* other = allocator_->allocate(2048);
  allocator_->deallocate(other, 2048);
  allocator_->deallocate(block, 2048);
}

TEST_F(CachingAllocatorTest, its_end_gives_everything_back) {
  for (const std::size_t size : kSizes) allocator_->deallocate(allocator_->allocate(size), size);
  EXPECT_GT(account_.blocks, 0);
  allocator_.reset();
  EXPECT_EQ(account_.blocks, 0);
  EXPECT_EQ(account_.bytes, 0);
}

#if defined(__SANITIZE_ADDRESS__)

// AddressSanitizer reports accesses of freed blocks, and of the end of a block behind what was asked for.
TEST(WatchedBlocks, are_accessible_as_far_as_they_were_asked_for) {
  CachingAllocator allocator(std::make_unique<HostMemory>());
  for (const std::size_t bytes : {100, 200, 100}) {  // the same block each time
    char* const block = static_cast<char*>(allocator.allocate(bytes));
    EXPECT_EQ(__asan_region_is_poisoned(block, bytes), nullptr) << bytes;
    EXPECT_TRUE(__asan_address_is_poisoned(block + bytes)) << bytes;
    allocator.deallocate(block, bytes);
    EXPECT_TRUE(__asan_address_is_poisoned(block)) << bytes;
  }
  EXPECT_EQ(allocator.stats().source_allocations, 1);
}

#endif

}  // namespace
}  // namespace stagegpt::test
