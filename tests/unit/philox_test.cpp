#include "common/random/philox.h"

#include <gtest/gtest.h>

#include <bit>
#include <set>
#include <vector>

#include "common/random/normal.h"

namespace stagegpt::test {
namespace {

using Words = std::array<std::uint32_t, 4>;

// The random block for a counter (c0, c1, c2, c3) and a key (k0, k1), in Random123's notation.
Words block(Words counter, std::uint32_t k0, std::uint32_t k1) {
  const RandomKey key{std::uint64_t{k1} << 32 | k0, /*stream=*/counter[3], /*step=*/counter[2]};
  return philox(key, std::uint64_t{counter[1]} << 32 | counter[0]);
}

// Known answers of philox4x32 with 10 rounds, from the Random123 distribution (kat_vectors).
TEST(PhiloxTest, gives_the_known_answers) {
  EXPECT_EQ(block({0, 0, 0, 0}, 0, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr std::uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(block({kOnes, kOnes, kOnes, kOnes}, kOnes, kOnes),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(block({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0xa4093822, 0x299f31d0),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(PhiloxTest, an_element_is_a_word_of_its_block) {
  const RandomKey key{1, 2, 3};
  for (std::uint64_t i = 0; i < 12; ++i) EXPECT_EQ(random_word(key, i), philox(key, i / 4)[i % 4]);
  const std::uint64_t far = std::uint64_t{1} << 40;
  EXPECT_EQ(random_word(key, far + 3), philox(key, far / 4)[3]);
}

TEST(PhiloxTest, every_part_of_the_key_matters) {
  const std::set<std::uint32_t> words = {
      random_word({1, 1, 1}, 0),
      random_word({2, 1, 1}, 0),
      random_word({1 + (std::uint64_t{1} << 32), 1, 1}, 0),
      random_word({1, 2, 1}, 0),
      random_word({1, 1, 2}, 0),
      random_word({1, 1, 1}, std::uint64_t{1} << 34),
  };
  EXPECT_EQ(words.size(), 6);
}

TEST(PhiloxTest, streams_do_not_meet) {
  std::set<std::uint32_t> ids;
  for (const RandomStream stream :
       {RandomStream::init, RandomStream::shuffle, RandomStream::sample, RandomStream::dropout_embedding,
        RandomStream::dropout_attention, RandomStream::dropout_residual}) {
    for (std::uint32_t index = 0; index < 100; ++index) ids.insert(stream_id(stream, index));
  }
  EXPECT_EQ(ids.size(), 600);
}

// The mean of the `power`-th power of `n` numbers.
template <class Draw>
double moment(const Draw& draw, int power, int n) {
  double sum = 0;
  for (int i = 0; i < n; ++i) sum += std::pow(draw(i), power);
  return sum / n;
}

// Five standard errors, 5 · sqrt(variance / n), of a moment of n = kDraws numbers. A larger error has a
// probability of about 1e-6.
constexpr int kDraws = 200000;
double five_errors(double variance) { return 5 * std::sqrt(variance / kDraws); }

TEST(PhiloxTest, uniform_numbers_are_uniform_in_the_unit_interval) {
  auto draw = [](int i) { return static_cast<double>(random_uniform({42, 1, 1}, i)); };
  double least = 1, most = 0;
  for (int i = 0; i < kDraws; ++i) {
    least = std::min(least, draw(i));
    most = std::max(most, draw(i));
  }
  EXPECT_GE(least, 0);
  EXPECT_LT(most, 1);
  EXPECT_LT(least, 1e-4);
  EXPECT_GT(most, 1 - 1e-4);
  EXPECT_NEAR(moment(draw, 1, kDraws), 1.0 / 2, five_errors(1.0 / 12));
  EXPECT_NEAR(moment(draw, 2, kDraws), 1.0 / 3, five_errors(1.0 / 5 - 1.0 / 9));
  EXPECT_EQ(uniform_of(0), 0);
  EXPECT_LT(uniform_of(0xffffffff), 1);
}

TEST(PhiloxTest, normal_numbers_have_the_moments_of_a_normal_distribution) {
  auto draw = [](int i) { return random_normal({42, 2, 1}, i); };
  EXPECT_NEAR(moment(draw, 1, kDraws), 0, five_errors(1));
  EXPECT_NEAR(moment(draw, 2, kDraws), 1, five_errors(3 - 1));
  EXPECT_NEAR(moment(draw, 3, kDraws), 0, five_errors(15));
  EXPECT_NEAR(moment(draw, 4, kDraws), 3, five_errors(105 - 9));
  auto neighbours = [&](int i) { return draw(2 * i) * draw(2 * i + 1); };
  EXPECT_NEAR(moment(neighbours, 1, kDraws), 0, five_errors(1));
}

// Elements [first, first + count) of draw_normal() have the bits of random_normal().
void expect_as_defined(const RandomKey& key, std::uint64_t first, std::size_t count, double mean,
                       double std) {
  std::vector<float> drawn(count);
  draw_normal(key, first, mean, std, drawn);
  for (std::size_t i = 0; i < count; ++i) {
    const auto expected = static_cast<float>(mean + std * random_normal(key, first + i));
    ASSERT_EQ(std::bit_cast<std::uint32_t>(drawn[i]), std::bit_cast<std::uint32_t>(expected))
        << "element " << first + i << " of " << first << " + " << count;
  }
}

TEST(DrawNormal, gives_the_bits_of_the_definition) {
  expect_as_defined({1337, 0, 3}, 0, 1 << 18, 0, 0.02);
  expect_as_defined({7, 1 << 8, 0}, std::uint64_t{1} << 34, 1 << 16, 0, 0.02 / 7);
  expect_as_defined({7, 0, 1}, 0, 1 << 16, 1, 0.5);
}

// Philox gives blocks of 4 numbers; the vectorised loop computes blocks of 256.
TEST(DrawNormal, begins_and_ends_anywhere) {
  for (const std::uint64_t first : {0, 1, 2, 3, 4, 255, 257}) {
    for (const std::size_t count : {0, 1, 3, 5, 255, 256, 257, 261, 1025}) {
      expect_as_defined({5, 0, 2}, first, count, 0, 1);
    }
  }
}

// These numbers are so near the middle between two floats that the vectorised polynomials alone would round
// to the wrong float. They were found among 335 million numbers.
TEST(DrawNormal, asks_the_definition_where_rounding_is_close) {
  const std::pair<std::uint32_t, std::uint64_t> hard[] = {
      {25, 3256939}, {50, 2837093}, {57, 2666674}, {62, 533318}, {74, 3229084}};
  for (const auto& [step, element] : hard) {
    expect_as_defined({1337, 0, step}, element / 256 * 256, 256, 0, 0.02);
  }
}

}  // namespace
}  // namespace stagegpt::test
