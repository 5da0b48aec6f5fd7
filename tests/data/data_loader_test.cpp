// The data loader: from tokens to batches.
#include "common/data/data_loader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <set>

#include "common/base/error.h"
#include "common/data/batch_stream.h"
#include "common/random/permutation.h"
#include "tests/data/shards.h"

namespace stagegpt::test {
namespace {

TEST(Permutation, IsOneAndDependsOnTheKey) {
  for (const std::uint64_t n : {1, 2, 3, 4, 5, 17, 64, 1000}) {
    std::set<std::uint64_t> seen;
    for (std::uint64_t i = 0; i < n; ++i) {
      const std::uint64_t image = permuted({7, 0, 0}, i, n);
      EXPECT_LT(image, n);
      seen.insert(image);
    }
    EXPECT_EQ(seen.size(), n);
  }
  int moved = 0;
  for (std::uint64_t i = 0; i < 1000; ++i)
    moved += permuted({7, 0, 0}, i, 1000) != permuted({7, 0, 1}, i, 1000);
  EXPECT_GT(moved, 900);
}

TEST(DataLoader, TargetsAreTheNextTokens) {
  const auto tokens = counting(1000);
  const DataLoader loader(tokens, 10, 1);
  const Batch batch = loader.shuffled(0, 500);
  for (std::size_t i = 0; i < batch.ids.size(); ++i) EXPECT_EQ(batch.targets[i], batch.ids[i] + 1);
}

TEST(DataLoader, AnEpochHasEveryWindowOnce) {
  const auto tokens = counting(1003);
  const DataLoader loader(tokens, 10, 1);
  ASSERT_EQ(loader.windows(), 99);
  for (const std::int64_t epoch : {0, 1, 7}) {
    const Batch batch = loader.shuffled(epoch * loader.windows(), loader.windows());
    std::vector<std::int32_t> ids = batch.ids;
    EXPECT_FALSE(std::ranges::is_sorted(ids));
    std::ranges::sort(ids);
    std::vector<std::int32_t> expected(990);
    std::iota(expected.begin(), expected.end(), ids.front());  // contiguous: no gap, no repeat
    EXPECT_EQ(ids, expected);
  }
}

TEST(DataLoader, OrderDependsOnSeedAndEpochAlone) {
  const auto tokens = counting(1003);
  const DataLoader loader(tokens, 10, 1), same(tokens, 10, 1), other(tokens, 10, 2);
  EXPECT_EQ(loader.shuffled(40, 8).ids, same.shuffled(40, 8).ids);
  EXPECT_NE(loader.shuffled(0, 8).ids, other.shuffled(0, 8).ids);
  EXPECT_NE(loader.shuffled(0, 8).ids, loader.shuffled(loader.windows(), 8).ids);
  // The same samples, whether fetched at once or in parts.
  std::vector<std::int32_t> parts = loader.shuffled(90, 4).ids;
  const auto rest = loader.shuffled(94, 12).ids;
  parts.insert(parts.end(), rest.begin(), rest.end());
  EXPECT_EQ(parts, loader.shuffled(90, 16).ids);
}

TEST(DataLoader, TakesTheShortestTextThatHasAWindow) {
  const auto tokens = counting(11);
  const DataLoader loader(tokens, 10, 1);
  EXPECT_EQ(loader.windows(), 1);
  EXPECT_EQ(loader.shuffled(5, 1).targets.back(), 10);
  EXPECT_THROW(DataLoader(counting(10), 10, 1), InternalError);
}

std::vector<std::int32_t> first_tokens(const Batch& batch, std::int64_t seq_len) {
  std::vector<std::int32_t> first;
  for (std::size_t i = 0; i < batch.ids.size(); i += static_cast<std::size_t>(seq_len))
    first.push_back(batch.ids[i]);
  return first;
}

TEST(BatchStream, SharesOfTheRanksAreDisjointAndTogetherComplete) {
  const DataLoader loader(counting(24 * 5 + 10), 5, 3);  // 24 windows, and room for the offset
  ASSERT_EQ(loader.windows(), 24);
  for (const int ranks : {1, 2, 3, 4, 6, 12}) {
    std::multiset<std::int32_t> seen;
    for (int rank = 0; rank < ranks; ++rank) {
      BatchStream stream(loader, divide_step(12, 1, rank, ranks, 0));
      for (int batch = 0; batch < 2; ++batch) {
        for (const std::int32_t first : first_tokens(stream.next().batch, 5)) seen.insert(first);
      }
      EXPECT_EQ(stream.position(), 24);
    }
    std::multiset<std::int32_t> expected;
    for (const std::int32_t first : first_tokens(loader.shuffled(0, 24), 5)) expected.insert(first);
    EXPECT_EQ(seen, expected) << ranks << " ranks";
    EXPECT_EQ(std::set(seen.begin(), seen.end()).size(), 24u);
  }
}

TEST(BatchStream, BatchesAreTheSameForEveryNumberOfRanks) {
  const DataLoader loader(counting(1003), 10, 1);
  BatchStream all(loader, divide_step(12, 1, 0, 1, 0));
  for (const int ranks : {2, 3, 12}) {
    all.seek(0);
    std::vector<std::unique_ptr<BatchStream>> streams;
    for (int rank = 0; rank < ranks; ++rank)
      streams.push_back(std::make_unique<BatchStream>(loader, divide_step(12, 1, rank, ranks, 0)));
    for (int step = 0; step < 20; ++step) {  // beyond the first epoch, of 99 windows
      Batch joined;
      for (const auto& stream : streams) {
        const Batch share = stream->next().batch;
        joined.ids.insert(joined.ids.end(), share.ids.begin(), share.ids.end());
        joined.targets.insert(joined.targets.end(), share.targets.begin(), share.targets.end());
      }
      const Batch whole = all.next().batch;
      ASSERT_EQ(joined.ids, whole.ids) << ranks << " ranks, step " << step;
      ASSERT_EQ(joined.targets, whole.targets);
    }
  }
}

TEST(BatchStream, GoesOnFromAPositionAtAnotherNumberOfRanks) {
  const DataLoader loader(counting(1003), 10, 1);
  BatchStream before(loader, divide_step(12, 1, 0, 1, 0));
  for (int i = 0; i < 7; ++i) before.next();
  BatchStream after(loader, divide_step(12, 1, 2, 3, 0));
  after.seek(before.position());
  EXPECT_EQ(after.next().batch.ids, loader.shuffled(7 * 12 + 8, 4).ids);
  after.seek(std::int64_t{12} * 1'000'000'000'000);  // seeking takes the same time for any distance
  EXPECT_EQ(after.next().batch.ids, loader.shuffled(std::int64_t{12} * 1'000'000'000'000 + 8, 4).ids);
}

// A step has two micro-steps of 16 samples, each divided into 8 sub-batches of 2. Rank 1 of 4 gets sub-batch
// 2 of each micro-step, then sub-batch 3 of each (counted from 0).
TEST(BatchStream, GivesOneSubBatchOfAllMicroStepsThenTheNext) {
  const DataLoader loader(counting(1003), 10, 1);
  BatchStream stream(loader, divide_step(16, 2, 1, 4, /*sub_batches=*/8));
  for (int step = 0; step < 3; ++step) {
    for (const std::int64_t sample : {4, 20, 6, 22}) {
      EXPECT_EQ(stream.position(), 32 * step);
      const SubBatch sub_batch = stream.next();
      EXPECT_EQ(sub_batch.first_sample, sample);
      EXPECT_EQ(sub_batch.batch.ids, loader.shuffled(32 * step + sample, 2).ids);
    }
  }
}

}  // namespace
}  // namespace stagegpt::test
