// Division of the arena into buckets.
#include "stage1_mpi/sync/buckets.h"

#include <gtest/gtest.h>

#include "common/model/gpt2.h"

namespace stagegpt::test {
namespace {

constexpr std::int64_t kFloat = sizeof(float);

ParameterTable small_table() {
  return gpt2_parameter_table({.vocab_size = 101, .block_size = 20, .n_layer = 2, .n_head = 3, .n_embd = 48});
}

std::int64_t end_of(const Parameter& row) { return row.offset + row.arena_shape().numel(); }

TEST(Buckets, have_each_parameter_once_from_the_end_on) {
  const ParameterTable table = small_table();
  for (const std::int64_t bytes :
       {std::int64_t{1}, std::int64_t{1000}, std::int64_t{24} << 10, kBucketBytes}) {
    const Buckets buckets(table, bytes);
    std::size_t parameter = table.size();
    for (std::size_t b = 0; b < buckets.all().size(); ++b) {
      const Bucket& bucket = buckets.all()[b];
      ASSERT_GT(bucket.parameters, 0);
      EXPECT_EQ(bucket.range.end, end_of(table[parameter - 1]));
      for (int i = 0; i < bucket.parameters; ++i) {
        EXPECT_EQ(buckets.first_of(static_cast<int>(--parameter)), b);
        EXPECT_EQ(buckets.last_of(static_cast<int>(parameter)), b);
      }
      EXPECT_EQ(bucket.range.begin, table[parameter].offset);
    }
    EXPECT_EQ(parameter, 0u) << "with buckets of " << bytes << " bytes";
  }
}

TEST(Buckets, are_closed_when_they_have_their_size) {
  const ParameterTable table = small_table();
  for (const std::int64_t bytes : {std::int64_t{1000}, std::int64_t{24} << 10}) {
    const Buckets buckets(table, bytes);
    std::size_t parameter = table.size();
    for (const Bucket& bucket : buckets.all()) {
      parameter -= static_cast<std::size_t>(bucket.parameters);
      const bool last = &bucket == &buckets.all().back();
      if (!last) {
        EXPECT_GE(bucket.range.size() * kFloat, bytes);
      }
      // Without its last parameter, the bucket would have been too small.
      const std::int64_t before = bucket.range.end - end_of(table[parameter]);
      if (bucket.parameters > 1) {
        EXPECT_LT(before * kFloat, bytes);
      }
    }
  }
}

TEST(Buckets, of_one_byte_have_one_parameter_each) {
  EXPECT_EQ(Buckets(small_table(), 1).all().size(), small_table().size());
}

TEST(Buckets, of_a_large_size_have_all_parameters) {
  const Buckets buckets(small_table(), kBucketBytes);
  ASSERT_EQ(buckets.all().size(), 1u);
  EXPECT_EQ(buckets.all()[0].parameters, static_cast<int>(small_table().size()));
}

TEST(Buckets, do_not_wait_for_frozen_parameters) {
  ParameterTable table = small_table();
  table.freeze("h.1.*");
  const Buckets buckets(table, kBucketBytes);
  ASSERT_EQ(buckets.all().size(), 1u);
  EXPECT_EQ(buckets.all()[0].range.begin, 0);
  EXPECT_EQ(buckets.all()[0].parameters, static_cast<int>(table.size()) - 12);
}

TEST(DivisibleRanges, cover_the_arena_from_its_end) {
  const ParameterTable table = small_table();
  for (const int ranks : {1, 3, 64}) {
    const std::int64_t size = table.arena_size(ranks);
    for (const std::int64_t bytes : {std::int64_t{1}, std::int64_t{24} << 10, kBucketBytes}) {
      std::int64_t end = size;
      for (const ArenaRange& range : divisible_ranges(size, ranks, bytes)) {
        EXPECT_EQ(range.end, end);
        EXPECT_EQ(range.size() % (ranks * ParameterTable::kAlignment), 0);
        EXPECT_LT(range.size() * kFloat, bytes + ranks * ParameterTable::kAlignment * kFloat);
        if (range.begin > 0) {
          EXPECT_GE(range.size() * kFloat, bytes);
        }
        end = range.begin;
      }
      EXPECT_EQ(end, 0) << "buckets of " << bytes << " bytes, " << ranks << " ranks";
    }
  }
}

// A parameter may have elements in several buckets, which all wait for it.
TEST(Buckets, of_given_ranges_count_the_parameters_in_them) {
  ParameterTable table = small_table();
  table.freeze("ln_f.*");
  const Buckets buckets(table, divisible_ranges(table.arena_size(3), 3, 24 << 10));
  ASSERT_GT(buckets.all().size(), 5u);
  std::vector<int> expected(buckets.all().size());
  for (std::size_t i = 0; i < table.size(); ++i) {
    const Parameter& row = table[i];
    std::vector<std::size_t> with;  // the buckets with elements of this parameter
    for (std::size_t b = 0; b < buckets.all().size(); ++b) {
      const ArenaRange& range = buckets.all()[b].range;
      const std::int64_t common = std::min(range.end, end_of(row)) - std::max(range.begin, row.offset);
      if (common <= 0) continue;
      with.push_back(b);
      expected[b] += row.trained;
    }
    EXPECT_EQ(buckets.first_of(static_cast<int>(i)), with.front()) << row.name;
    EXPECT_EQ(buckets.last_of(static_cast<int>(i)), with.back()) << row.name;
  }
  for (std::size_t b = 0; b < expected.size(); ++b) EXPECT_EQ(buckets.all()[b].parameters, expected[b]);
  EXPECT_GT(buckets.last_of(0), buckets.first_of(0)) << "wte is larger than a bucket";
}

// 124 million parameters: 498 MB, of which wte has 154 MB.
TEST(Buckets, of_gpt2_are_more_than_ten) {
  const Buckets buckets(gpt2_parameter_table({}), kBucketBytes);
  EXPECT_GE(buckets.all().size(), 10u);
  EXPECT_LE(buckets.all().size(), 20u);
}

}  // namespace
}  // namespace stagegpt::test
