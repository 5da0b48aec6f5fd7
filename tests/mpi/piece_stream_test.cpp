// Rank 0 gets the pieces of arenas from the ranks that own them.
#include "common/checkpoint/piece_stream.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "common/comm/agreement.h"
#include "stage0_serial/naive_backend.h"
#include "tests/support/mpi_ranks.h"
#include "tests/support/refusal.h"

namespace stagegpt::test {
namespace {

// Elements: divisible by 1, 2, 3 and 4 ranks. The second parameter is larger than a message.
constexpr std::int64_t kArenaSize = 3 << 20;

class PieceStreamTest : public testing::Test {
 protected:
  struct Fetch {
    std::size_t arena;
    Piece piece;
  };

  PieceStreamTest() {
    table_.add({"a", {1000}, 1000});
    table_.add({"b", {2 << 20}, 2 << 20});
    table_.add({"c", {100'000}, 100'000});
  }
  // Element i of arena a is i + a/2.
  static float element(std::size_t arena, std::int64_t i) {
    return static_cast<float>(i) + static_cast<float>(arena) / 2;
  }
  OwnedArena arena(std::size_t a, const ArenaParts& owned) const {
    OwnedArena arena{owned, {}};
    for (const ArenaRange& range : owned) {
      std::vector<float> elements;
      for (std::int64_t i = range.begin; i < range.end; ++i) elements.push_back(element(a, i));
      arena.parts.push_back(to_device<float>(*backend_, {range.size()}, elements));
    }
    return arena;
  }
  // Arena 0 is on every rank; of arena 1 each rank has a slice of each of two ranges, rank 0 the second one
  // in two parts.
  std::vector<OwnedArena> arenas() const {
    constexpr std::int64_t kFirst = kArenaSize - 12;
    const std::int64_t r = ranks().rank(), n = ranks().size(), slice = kFirst / n, small = 12 / n;
    ArenaParts parts = {{r * slice, (r + 1) * slice}, {kFirst + r * small, kFirst + (r + 1) * small}};
    if (r == 0) {
      parts.push_back({kFirst + 1, parts[1].end});
      parts[1].end = kFirst + 1;
    }
    return {arena(0, {{0, kArenaSize}}), arena(1, parts)};
  }
  // What rank 0 asks for: parts of parameters, a whole one, and ranges that others have.
  static std::vector<Fetch> fetches() {
    std::vector<Fetch> fetches = {{0, {0, 0, 1000}}, {1, {0, 0, 1000}}, {1, {2, 5, 100'000}}};
    for (std::int64_t begin = 0; begin < 2 << 20; begin += 1 << 17)
      fetches.push_back({1, {1, begin, begin + (1 << 17)}});
    fetches.push_back({1, {1, 0, 2 << 20}});
    fetches.push_back({0, {1, 17, 18}});
    return fetches;
  }
  // Fetches, and returns the number of wrong elements.
  int fetch(PieceStream& stream, const Fetch& fetch) const {
    std::vector<float> out(static_cast<std::size_t>(fetch.piece.size()), -1);
    stream.values(fetch.arena)(fetch.piece.parameter, fetch.piece.begin, out);
    int wrong = 0;
    for (std::int64_t i = fetch.piece.begin; i < fetch.piece.end; ++i) {
      wrong += out[static_cast<std::size_t>(i - fetch.piece.begin)] !=
               element(fetch.arena, table_[fetch.piece.parameter].offset + i);
    }
    return wrong;
  }

  const std::unique_ptr<Backend> backend_ = make_naive_backend();
  ParameterTable table_;
};

TEST_F(PieceStreamTest, brings_rank_0_its_pieces) {
  PieceStream stream(ranks(), *backend_, placed_as_in(table_), arenas());
  int wrong = 0, fetched = 0;
  stream.run([&] {
    for (const Fetch& one : fetches()) wrong += fetch(stream, one), ++fetched;
  });
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(fetched, ranks().is_root() ? std::ssize(fetches()) : 0);
}

// Rank 0 fails before, between or after its fetches.
TEST_F(PieceStreamTest, ends_on_all_ranks_when_rank_0_fails) {
  const std::vector<Fetch> all = fetches();
  for (const std::size_t fails_at : {std::size_t{0}, std::size_t{1}, std::size_t{9}, all.size()}) {
    PieceStream stream(ranks(), *backend_, placed_as_in(table_), arenas());
    const std::string told = failure([&] {
      stream.run([&] {
        for (std::size_t at = 0; at < fails_at; ++at) fetch(stream, all[at]);
        throw std::runtime_error("the disk is full");
      });
    });
    EXPECT_EQ(told, ranks().size() == 1 ? "the disk is full" : "rank 0: the disk is full");
    EXPECT_EQ(from_root(ranks(), 17 + ranks().rank()), 17);  // no message is left
  }
}

}  // namespace
}  // namespace stagegpt::test
