// The message about ranks whose weights differ, for groups larger than tests can start.
#include "common/train/compare_weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "common/base/error.h"
#include "stage0_serial/naive_backend.h"

namespace stagegpt::test {
namespace {

// Rank 0 of several. An all-gather gives rank 0's bytes for each rank, but different bytes for the ranks in
// `others`.
class MadeUpRanks final : public RankGroup {
 public:
  MadeUpRanks(int size, std::set<int> others) : size_(size), others_(std::move(others)) {}
  int rank() const override { return 0; }
  int size() const override { return size_; }
  std::string host(int rank) const override { return concat("node", rank / 2); }
  void barrier() override {}
  void broadcast(std::span<std::byte>, int) override {}
  void all_gather(std::span<const std::byte> own, std::span<std::byte> all) override {
    for (int rank = 0; rank < size_; ++rank) {
      const std::span<std::byte> of_rank =
          all.subspan(static_cast<std::size_t>(rank) * own.size(), own.size());
      std::ranges::copy(own, of_rank.begin());
      if (own.size() == kHash && others_.contains(rank)) of_rank.front() ^= std::byte{1};
    }
  }
  void enter(const char*) override {}
  void beat() override { ++beats; }

  int beats = 0;

 private:
  static constexpr std::size_t kHash = 32;  // bytes; other messages are shorter
  int size_;
  std::set<int> others_;
};

std::string complaint(int size, const std::set<int>& others, int tensor_ranks = 1) {
  const auto backend = make_naive_backend();
  ParameterTable table;
  table.add({"w", {4}, 4});
  const Parameters parameters(*backend, table, DType::f32);
  MadeUpRanks ranks(size, others);
  try {
    require_same_weights(ranks, *backend, parameters, "after step 3", tensor_ranks);
  } catch (const WeightsDiffer& error) {
    return error.what();
  }
  return "";
}

TEST(RanksThatDiffer, AreNamedWithTheirHosts) {
  EXPECT_EQ(complaint(1, {0}), "");
  EXPECT_EQ(complaint(5, {}), "");
  EXPECT_EQ(complaint(5, {3}), "weights after step 3: rank 3 (node1) differs from the other 4");
  EXPECT_EQ(complaint(5, {0, 4}), "weights after step 3: ranks 0 (node0), 4 (node2) differ from the other 3");
  EXPECT_EQ(complaint(5, {1, 2, 3, 4}), "weights after step 3: rank 0 (node0) differs from the other 4");
}

TEST(RanksThatDiffer, AreNotBlamedWithoutAMajority) {
  EXPECT_EQ(complaint(2, {1}),
            "weights after step 3: rank 1 (node0) differs from rank 0 (node0); without a majority, the "
            "correct ones are unknown");
  EXPECT_EQ(complaint(4, {0, 3}),
            "weights after step 3: ranks 1 (node0), 2 (node1) differ from ranks 0 (node0), 3 (node1); "
            "without a majority, the correct ones are unknown");
}

// Tensor ranks have different parts: with two, only ranks 0, 2, 4 are compared, and ranks 1, 3, 5.
TEST(RanksThatDiffer, AreComparedWithThoseThatHaveTheSamePart) {
  EXPECT_EQ(complaint(2, {1}, 2), "");
  EXPECT_EQ(complaint(6, {1, 3, 5}, 2), "");
  EXPECT_EQ(complaint(6, {0, 2, 5}, 2), "weights after step 3: rank 4 (node2) differs from the other 2");
  EXPECT_EQ(complaint(6, {1, 3}, 2), "weights after step 3: rank 5 (node2) differs from the other 2");
}

TEST(RanksThatDiffer, AreCountedWhereThereAreMany) {
  std::string eight = "4 (node2)";
  for (int rank = 5; rank < 12; ++rank) eight += concat(", ", rank, " (node", rank / 2, ')');
  EXPECT_EQ(complaint(20, {4, 5, 6, 7, 8, 9, 10, 11}),
            "weights after step 3: ranks " + eight + " differ from the other 12");
  EXPECT_EQ(complaint(20, {4, 5, 6, 7, 8, 9, 10, 11, 12}),
            "weights after step 3: ranks " + eight + " and 1 other differ from the other 11");
  EXPECT_EQ(complaint(30, {4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}),
            "weights after step 3: ranks " + eight + " and 3 others differ from the other 19");
}

// A beat after each piece shows the watchdog that a large arena is being read.
TEST(RanksThatDiffer, AreLookedForInPieces) {
  constexpr std::int64_t kPiece = 1 << 20;
  const auto backend = make_naive_backend();
  for (const auto& [elements, beats] : {std::pair{kPiece, 1}, {kPiece + 64, 2}}) {
    ParameterTable table;
    table.add({"w", {elements}, elements});
    const Parameters parameters(*backend, table, DType::f32);
    MadeUpRanks ranks(2, {});
    require_same_weights(ranks, *backend, parameters, "");
    EXPECT_EQ(ranks.beats, beats);
  }
}

}  // namespace
}  // namespace stagegpt::test
