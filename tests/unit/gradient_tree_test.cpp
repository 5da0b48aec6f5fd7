// The sum of the sub-batches' gradients, whose order does not depend on which rank owns which sub-batch.
#include "common/comm/gradient_tree.h"

#include <gtest/gtest.h>

#include "stage0_serial/naive_backend.h"
#include "tests/support/tensors.h"

namespace stagegpt::test {
namespace {

constexpr std::int64_t kSize = 1000;

using Floats = std::vector<float>;

class GradientTreeTest : public testing::Test {
 protected:
  // Gradients of eight sub-batches, of magnitudes so different that each order of addition gives different
  // bits.
  GradientTreeTest() {
    for (std::uint32_t i = 0; i < 8; ++i) {
      const Values values = random_values(1, i, kSize, std::pow(10, static_cast<int>(i * 3 % 8)));
      gradients_.emplace_back(values.begin(), values.end());
    }
  }

  // The sum of the sub-batches [begin, end), computed by a tree.
  Floats tree_sum(std::size_t begin, std::size_t end) {
    GradientTree tree(*backend_, static_cast<std::int64_t>(end - begin));
    for (std::size_t i = begin; i < end; ++i) add(tree, gradients_[i]);
    return to_host<float>(*backend_, grads_);
  }
  void add(GradientTree& tree, const Floats& gradients) {
    upload<float>(*backend_, grads_, gradients);
    tree.add(grads_);
  }

  const std::unique_ptr<Backend> backend_ = make_naive_backend();
  const Tensor grads_ = backend_->allocate(DType::f32, {kSize});
  std::vector<Floats> gradients_;
};

Floats operator+(const Floats& a, const Floats& b) {
  Floats sum(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) sum[i] = a[i] + b[i];
  return sum;
}

TEST_F(GradientTreeTest, adds_neighbours_first) {
  const auto& g = gradients_;
  EXPECT_EQ(tree_sum(0, 1), g[0]);
  EXPECT_EQ(tree_sum(0, 2), g[0] + g[1]);
  EXPECT_EQ(tree_sum(0, 4), (g[0] + g[1]) + (g[2] + g[3]));
  EXPECT_EQ(tree_sum(0, 8), ((g[0] + g[1]) + (g[2] + g[3])) + ((g[4] + g[5]) + (g[6] + g[7])));
  EXPECT_NE(tree_sum(0, 4), ((g[0] + g[1]) + g[2]) + g[3]) << "these numbers would not notice another order";
}

TEST_F(GradientTreeTest, of_parts_and_of_the_whole_have_the_same_bits) {
  const Floats whole = tree_sum(0, 8);
  for (const std::size_t owned : {1, 2, 4}) {
    std::vector<Floats> sums;
    for (std::size_t begin = 0; begin < 8; begin += owned) sums.push_back(tree_sum(begin, begin + owned));
    while (sums.size() > 1) {
      for (std::size_t i = 0; i < sums.size() / 2; ++i) sums[i] = sums[2 * i] + sums[2 * i + 1];
      sums.resize(sums.size() / 2);
    }
    EXPECT_EQ(sums[0], whole) << "by parts of " << owned;
  }
}

TEST_F(GradientTreeTest, begins_again_after_the_last_sub_batch) {
  GradientTree tree(*backend_, 4);
  for (int step = 0; step < 3; ++step) {
    for (std::size_t i = 0; i < 4; ++i) add(tree, gradients_[i]);
    EXPECT_EQ(to_host<float>(*backend_, grads_), tree_sum(0, 4)) << "step " << step;
  }
}

TEST_F(GradientTreeTest, takes_the_memory_of_its_height) {
  constexpr std::size_t kArena = kSize * sizeof(float);
  for (const std::size_t height : {0, 1, 2, 3}) {
    GradientTree tree(*backend_, std::int64_t{1} << height);
    const std::size_t before = backend_->memory_stats().bytes_in_use;
    for (int step = 0; step < 2; ++step) {
      for (std::size_t i = 0; i < std::size_t{1} << height; ++i) add(tree, gradients_[i]);
    }
    const std::size_t taken = backend_->memory_stats().bytes_in_use - before;
    EXPECT_GE(taken, height * kArena);
    EXPECT_LT(taken, height * kArena + kArena) << "with 2^" << height << " sub-batches";
  }
}

TEST_F(GradientTreeTest, wants_a_power_of_two) {
  for (const std::int64_t leaves : {0, 3, 6, 12})
    EXPECT_THROW(GradientTree(*backend_, leaves), InternalError);
}

}  // namespace
}  // namespace stagegpt::test
