// Communication of a rank group.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "common/comm/agreement.h"
#include "tests/support/mpi_ranks.h"

namespace stagegpt::test {
namespace {

// Bytes that differ between ranks.
std::vector<std::uint8_t> bytes_of(int rank, std::size_t size) {
  std::vector<std::uint8_t> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::uint8_t>(i * 7 + 31 * (rank + 1));
  return bytes;
}

TEST(RankGroup, broadcasts_from_any_root) {
  for (const std::size_t size : {0, 1, 1000003}) {
    for (int root = 0; root < ranks().size(); ++root) {
      std::vector<std::uint8_t> bytes = bytes_of(ranks().rank(), size);
      ranks().broadcast(std::as_writable_bytes(std::span(bytes)), root);
      EXPECT_EQ(bytes == bytes_of(root, size), true) << size << " bytes from rank " << root;
    }
  }
}

TEST(RankGroup, gathers_in_the_order_of_ranks) {
  for (const std::size_t size : {0, 1, 1000003}) {
    const std::vector<std::uint8_t> all = gather(ranks(), bytes_of(ranks().rank(), size));
    std::vector<std::uint8_t> expected;
    for (int rank = 0; rank < ranks().size(); ++rank) {
      const std::vector<std::uint8_t> bytes = bytes_of(rank, size);
      expected.insert(expected.end(), bytes.begin(), bytes.end());
    }
    EXPECT_EQ(all == expected, true) << size << " bytes";
  }
}

TEST(RankGroup, refuses_to_gather_into_another_size) {
  std::vector<std::byte> own(3), all(3 * static_cast<std::size_t>(ranks().size()) + 1);
  EXPECT_THROW(ranks().all_gather(own, all), InternalError);
}

// All processes of a machine have the same steady clock, so times of different ranks can be compared.
TEST(RankGroup, nobody_leaves_a_barrier_before_all_have_come) {
  using Clock = std::chrono::steady_clock;
  std::this_thread::sleep_for(std::chrono::milliseconds(20 * ranks().rank()));
  const std::int64_t came = Clock::now().time_since_epoch().count();
  ranks().barrier();
  const std::int64_t left = Clock::now().time_since_epoch().count();
  for (const std::int64_t others : gather(ranks(), came)) EXPECT_GE(left, others);
}

// The root reports progress meanwhile. These messages must not be confused with the later broadcasts.
TEST(RankGroup, waits_while_the_root_works) {
  using Clock = std::chrono::steady_clock;
  int calls = 0;
  Clock::rep ended = 0;
  const auto work = [&] {
    for (int i = 0; i < 3; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(110));
      ranks().beat();
    }
    ++calls;
    ended = Clock::now().time_since_epoch().count();
  };
  ranks().while_root_works(work);
  const Clock::rep left = Clock::now().time_since_epoch().count();
  EXPECT_EQ(calls, ranks().is_root() ? 1 : 0);
  EXPECT_GE(left, from_root(ranks(), ended));
  EXPECT_EQ(from_root(ranks(), 17), 17);
}

// Even ranks and odd ranks, each from the last to the first.
class Parts : public testing::Test {
 protected:
  const int color_ = ranks().rank() % 2;
  const std::unique_ptr<stagegpt::RankGroup> part_ = ranks().split(color_, -ranks().rank());
  // The members' ranks, in order of their ranks in the part.
  const std::vector<int> members_ = gather(*part_, ranks().rank());
};

TEST_F(Parts, OfAGroupAreOrderedByKey) {
  std::vector<int> expected;
  for (int rank = ranks().size() - 1; rank >= 0; --rank) {
    if (rank % 2 == color_) expected.push_back(rank);
  }
  EXPECT_EQ(members_, expected);
  EXPECT_EQ(part_->size(), std::ssize(expected));
  EXPECT_EQ(expected[static_cast<std::size_t>(part_->rank())], ranks().rank());
  for (int rank = 0; rank < part_->size(); ++rank)
    EXPECT_EQ(part_->host(rank), ranks().host(members_[static_cast<std::size_t>(rank)]));
}

TEST_F(Parts, OfAGroupTalkAmongThemselves) {
  EXPECT_EQ(from_root(*part_, ranks().rank()), members_[0]);
  EXPECT_EQ(any(*part_, ranks().rank() == 1), color_ == 1);
  int calls = 0;
  part_->while_root_works([&] { ++calls; });
  EXPECT_EQ(calls, part_->is_root() ? 1 : 0);
  if (part_->size() == 1) return;
  const int last = part_->size() - 1;
  int message = ranks().rank();
  if (part_->is_root()) part_->send(std::as_bytes(std::span(&message, 1)), last);
  if (part_->rank() == last) part_->receive(std::as_writable_bytes(std::span(&message, 1)), 0);
  EXPECT_EQ(message, part_->rank() == last ? members_[0] : ranks().rank());
}

// A part of a part, of one rank.
TEST_F(Parts, OfAGroupCanBeSplit) {
  const std::unique_ptr<stagegpt::RankGroup> alone = part_->split(part_->rank(), 0);
  EXPECT_EQ(alone->size(), 1);
  EXPECT_EQ(from_root(*alone, ranks().rank()), ranks().rank());
}

TEST(RankGroup, OfASingleProcessIsSplitIntoItself) {
  SingleProcess single;
  const std::unique_ptr<stagegpt::RankGroup> part = single.split(3, 4);
  EXPECT_EQ(part->rank(), 0);
  EXPECT_EQ(part->size(), 1);
}

}  // namespace
}  // namespace stagegpt::test
