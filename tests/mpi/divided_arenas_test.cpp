// Rank 0 reads arenas that are divided among ranks.
#include "common/train/divided_arenas.h"

#include <gtest/gtest.h>

#include "common/comm/agreement.h"
#include "stage0_serial/naive_backend.h"
#include "tests/support/mpi_ranks.h"

namespace stagegpt::test {
namespace {

// Elements: divisible by 1, 2, 3 and 4 ranks. With two ranks, each part is larger than the piece that is sent
// at once.
constexpr std::int64_t kArena = 3 << 20;

class DividedArenasTest : public testing::Test {
 protected:
  // This rank's slice of each of two halves of the arena, the second of which is small.
  static ArenaParts owned() {
    constexpr std::int64_t kFirst = kArena - 12;
    const std::int64_t r = ranks().rank(), n = ranks().size(), slice = kFirst / n, small = 12 / n;
    return {{r * slice, (r + 1) * slice}, {kFirst + r * small, kFirst + (r + 1) * small}};
  }
  // This rank's parts of arena a, whose element i is i + a/2.
  std::vector<Tensor> parts(float a) const {
    std::vector<Tensor> parts;
    for (const ArenaRange& range : owned()) {
      std::vector<float> elements;
      for (std::int64_t i = range.begin; i < range.end; ++i)
        elements.push_back(static_cast<float>(i) + a / 2);
      parts.push_back(to_device<float>(*backend_, {range.size()}, elements));
    }
    return parts;
  }

  const std::unique_ptr<Backend> backend_ = make_naive_backend();
  const DividedArenas arenas_{ranks(), *backend_, owned(), {parts(0), parts(1)}};
};

TEST_F(DividedArenasTest, are_read_from_whoever_owns_them) {
  int wrong = 0;
  arenas_.on_root([&] {
    const std::pair<std::int64_t, std::int64_t> ranges[] = {{0, kArena},
                                                            {kArena / 2 - 5, kArena / 2 + 7},
                                                            {kArena - 17, kArena - 3},
                                                            {kArena - 1, kArena},
                                                            {7, 7}};
    for (const std::size_t arena : {1, 0}) {
      for (const auto& [begin, end] : ranges) {
        std::vector<float> out(static_cast<std::size_t>(end - begin));
        arenas_.read(arena, begin, out);
        for (std::int64_t i = begin; i < end; ++i) {
          wrong += out[static_cast<std::size_t>(i - begin)] !=
                   static_cast<float>(i) + static_cast<float>(arena) / 2;
        }
      }
    }
  });
  EXPECT_EQ(wrong, 0);
}

TEST_F(DividedArenasTest, have_the_values_of_parameters) {
  ParameterTable table;
  table.add({"a", {100}, 100});
  table.add({"b", {1000}, 1000});
  std::vector<float> out(10), expected;
  for (int i = 0; i < 10; ++i) expected.push_back(static_cast<float>(table[1].offset + 7 + i) + 0.5f);
  arenas_.on_root([&] { arenas_.values(table, 1)(1, 7, out); });
  if (ranks().is_root()) {
    EXPECT_EQ(out, expected);
  }
}

// Rank 0 fails after some of the reads. The other ranks, which wait for further reads, must continue.
TEST_F(DividedArenasTest, leave_nobody_behind_when_reading_fails) {
  const auto fail = [&] {
    std::vector<float> out(100);
    arenas_.read(0, kArena - 100, out);
    throw std::runtime_error("the disk is full");
  };
  EXPECT_THROW(arenas_.on_root(fail), std::runtime_error);
  EXPECT_EQ(from_root(ranks(), 17 + ranks().rank()), 17);
}

}  // namespace
}  // namespace stagegpt::test
