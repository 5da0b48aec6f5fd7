// A rank whose weights have changed is detected and named.
#include "common/train/compare_weights.h"

#include <gtest/gtest.h>

#include <bit>

#include "common/model/gpt2.h"
#include "stage0_serial/naive_backend.h"
#include "tests/support/mpi_ranks.h"
#include "tests/support/refusal.h"

namespace stagegpt::test {
namespace {

class CompareWeights : public testing::Test {
 protected:
  CompareWeights() { parameters_.initialize(7); }

  // Inverts the lowest bit of element i on this rank.
  void flip_a_bit(std::int64_t i) {
    const Tensor element = parameters_.weights().slice(i, {1});
    const auto bits = std::bit_cast<std::uint32_t>(to_host<float>(*backend_, element)[0]);
    const std::vector<float> changed = {std::bit_cast<float>(bits ^ 1)};
    upload<float>(*backend_, element, changed);
  }
  // The error message, which is the same on every rank; "" if the weights agree.
  std::string complaint() {
    return message_of<WeightsDiffer>(
        [&] { require_same_weights(ranks(), *backend_, parameters_, "after step 3"); });
  }
  static std::string name(int rank) { return concat(rank, " (", ranks().host(rank), ")"); }

  const std::unique_ptr<Backend> backend_ = make_naive_backend();
  // More elements than one hashed block has.
  Parameters parameters_{
      *backend_,
      gpt2_parameter_table({.vocab_size = 12000, .block_size = 20, .n_layer = 1, .n_head = 3, .n_embd = 96}),
      DType::f32, ranks().size()};
};

TEST_F(CompareWeights, finds_nothing_where_all_are_alike) { EXPECT_EQ(complaint(), ""); }

TEST_F(CompareWeights, names_the_rank_in_which_a_bit_has_changed) {
  const std::int64_t last = parameters_.table().rows().back().offset;
  ASSERT_GT(last, 1 << 20);
  const int size = ranks().size(), changed = size - 1;
  for (const std::int64_t i : {std::int64_t{0}, last}) {
    if (ranks().rank() == changed) flip_a_bit(i);
    const std::string expected =
        size == 1 ? ""
        : size == 2
            ? concat("weights after step 3: rank ", name(1), " differs from rank ", name(0),
                     "; without a majority, the correct ones are unknown")
            : concat("weights after step 3: rank ", name(changed), " differs from the other ", size - 1);
    EXPECT_EQ(complaint(), expected);
    if (ranks().rank() == changed) flip_a_bit(i);
  }
}

// Also where the weights in f32 are alike.
TEST_F(CompareWeights, finds_a_shadow_that_has_changed) {
  Parameters parameters(*backend_, parameters_.table(), DType::f32, ranks().size(), Purpose::training,
                        DType::bf16);
  EXPECT_NO_THROW(require_same_weights(ranks(), *backend_, parameters, ""));
  if (ranks().rank() == 0) backend_->fill(parameters.shadow().slice(parameters.shadow().numel() - 1, {1}), 1);
  const auto compare = [&] { require_same_weights(ranks(), *backend_, parameters, ""); };
  if (ranks().size() == 1) {
    compare();
  } else {
    EXPECT_THROW(compare(), WeightsDiffer);
  }
}

// The rank that differs is found by majority, so it may also be rank 0.
TEST_F(CompareWeights, goes_by_the_majority) {
  if (ranks().size() < 3) GTEST_SKIP() << "there is no majority";
  if (ranks().rank() == 0) flip_a_bit(5);
  EXPECT_NE(complaint().find(concat("rank ", name(0), " differs from")), std::string::npos) << complaint();
}

}  // namespace
}  // namespace stagegpt::test
