// Ops without a backward, and properties of single ops, on every backend.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>

#include "common/autograd/ops/attention.h"
#include "common/autograd/ops/cross_entropy.h"
#include "common/autograd/ops/dropout.h"
#include "common/autograd/ops/embedding.h"
#include "common/backend/ops/elementwise.h"
#include "tests/support/backends.h"
#include "tests/support/tensors.h"

namespace stagegpt::test {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

class ElementwiseOps : public testing::TestWithParam<BackendUnderTest> {
 protected:
  // Rows of logits for kTokens tokens, and NaN for the padding.
  static constexpr std::int64_t kLogitRows = 6, kTokens = 101, kPaddedTokens = 128;
  Tensor padded_logits() {
    Values values = random_values(1, 0, kLogitRows * kPaddedTokens);
    for (std::int64_t i = 0; i < std::ssize(values); ++i) {
      if (i % kPaddedTokens >= kTokens) values[i] = kNan;
    }
    return to_tensor(*backend_, DType::f32, {kLogitRows, kPaddedTokens}, values);
  }
  // The gradient of such logits.
  static void expect_zero_only_in_padding(const Values& grad) {
    for (std::int64_t i = 0; i < std::ssize(grad); ++i)
      ASSERT_EQ(grad[i] == 0, i % kPaddedTokens >= kTokens) << i;
  }

  const std::unique_ptr<Backend> backend_ = GetParam().make();
};

std::string test_name(const testing::TestParamInfo<BackendUnderTest>& info) { return info.param.name; }

TEST_P(ElementwiseOps, fill_sets_every_element_of_a_slice_and_no_other) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const std::int64_t n = 40000;
    const Tensor x = backend_->zeros(dtype, {n + 2});
    backend_->fill(x.slice(1, {n}), -2.5);
    Values expected(n + 2, -2.5);
    expected.front() = expected.back() = 0;
    EXPECT_EQ(to_values(*backend_, x), expected) << dtype;
  }
  const Tensor ids = backend_->allocate(DType::i32, {7});
  backend_->fill(ids, 3);
  EXPECT_EQ(to_host<std::int32_t>(*backend_, ids), std::vector<std::int32_t>(7, 3));
}

TEST_P(ElementwiseOps, copy_takes_the_elements_under_another_shape) {
  const Values values = random_values(1, 0, 35);
  const Tensor in = to_tensor(*backend_, DType::f32, {5, 7}, values);
  const Tensor out = backend_->zeros(DType::f32, {40});
  backend_->copy(out.slice(3, {35}), in);
  Values expected(40);
  std::copy(values.begin(), values.end(), expected.begin() + 3);
  EXPECT_EQ(to_values(*backend_, out), expected);
}

// CUDA rejects a kernel launch with zero blocks.
TEST_P(ElementwiseOps, tensors_without_elements_are_no_error) {
  const Tensor none = backend_->zeros(DType::f32, {0, 3});
  EXPECT_NO_THROW({
    backend_->fill(none, 1);
    backend_->run(Add{none, none, none});
    backend_->synchronize();
  });
}

TEST_P(ElementwiseOps, add_may_write_over_its_first_argument) {
  for (const std::int64_t n : {1, 17, 40000, 40001}) {
    const Values x = random_values(1, 0, n), y = random_values(1, 1, n);
    const Tensor a = to_tensor(*backend_, DType::f32, {n}, x), b = to_tensor(*backend_, DType::f32, {n}, y);
    const Tensor out = backend_->allocate(DType::f32, {n});
    backend_->run(Add{out, a, b});
    backend_->run(Add{a, a, b});
    Values expected;
    for (std::int64_t i = 0; i < n; ++i) {
      expected.push_back(static_cast<float>(x[i]) + static_cast<float>(y[i]));
    }
    EXPECT_EQ(to_values(*backend_, out), expected);
    EXPECT_EQ(to_values(*backend_, a), expected);
  }
}

// As a training calls it: the position is in the backend's memory, and is added to that of the call. The
// numbers of a sequence are a multiple of four, or not.
TEST_P(ElementwiseOps, dropout_reads_its_position_when_it_runs) {
  Backend& be = *backend_;
  const DType dtype = GetParam().dtypes[0];
  const Tensor position = be.allocate(DType::i32, {2});
  for (const std::int64_t T : {12, 7}) {
    constexpr std::int64_t B = 2, kHeads = 2, C = 8;
    const Tensor qkv = to_tensor(be, dtype, {B, T, 3 * C}, random_values(1, 0, B * T * 3 * C)),
                 dout = to_tensor(be, dtype, {B, T, C}, random_values(1, 1, B * T * C)),
                 out = be.allocate(dtype, {B, T, C}), dqkv = be.allocate(dtype, qkv.shape()),
                 lse = be.allocate(statistics_dtype(dtype), {B, kHeads, T});
    // Outputs of all ops with dropout.
    const auto outputs = [&](const Dropout& of_elements, const Dropout& of_scores) {
      std::vector<Values> all;
      be.run(DropoutForward{out, dout, of_elements});
      all.push_back(to_values(be, out));
      be.run(DropoutBackward{{out, GradMode::overwrite}, dout, of_elements});
      all.push_back(to_values(be, out));
      be.run(AttentionForward{out, lse, qkv, kHeads, 0.5, of_scores});
      all.push_back(to_values(be, out));
      be.run(AttentionBackward{{dqkv, GradMode::overwrite}, dout, out, lse, qkv, kHeads, 0.5, of_scores});
      all.push_back(to_values(be, dqkv));
      return all;
    };
    const auto elsewhere = [&](std::int64_t elements) {
      return Dropout{0.4, {3, 5, 99}, 1000, position, elements};
    };
    for (const PassPosition now : {PassPosition{6, 0}, PassPosition{7, 3}}) {
      upload<std::int32_t>(be, position, std::array{now.step, now.first_sequence});
      const auto here = [&](std::int64_t elements) {
        return Dropout{
            0.4, {3, 5, static_cast<std::uint32_t>(now.step)}, 1000 + now.first_sequence * elements};
      };
      const std::int64_t elements = T * C, scores = kHeads * T * T;
      EXPECT_EQ(outputs(elsewhere(elements), elsewhere(scores)), outputs(here(elements), here(scores)))
          << T << " tokens, step " << now.step;
    }
  }
}

TEST_P(ElementwiseOps, cross_entropy_reads_no_padding_and_its_gradient_there_is_zero) {
  Backend& be = *backend_;
  const Tensor logits = padded_logits(), targets = to_tensor(be, {kLogitRows}, {0, 100, 50, 50, 99, 1});
  const Tensor loss = be.allocate(DType::f32, {1}), lse = be.allocate(DType::f32, {kLogitRows});
  be.run(CrossEntropyForward{loss, lse, logits, targets, kTokens});
  EXPECT_TRUE(std::isfinite(to_value(be, loss)));

  const Tensor dloss = be.allocate(DType::f32, {1});
  be.fill(dloss, 1);
  const Tensor dlogits = be.allocate(DType::f32, logits.shape());
  be.fill(dlogits, kNan);
  be.run(CrossEntropyBackward{dlogits, dloss, logits, lse, targets, kTokens});
  be.run(CrossEntropyBackward{logits, dloss, logits, lse, targets, kTokens});  // in place
  const Values grad = to_values(be, dlogits);
  EXPECT_EQ(to_values(be, logits), grad);
  expect_zero_only_in_padding(grad);
}

// A row so short that most threads have no element: the thread with the NaN meets only those.
TEST_P(ElementwiseOps, a_loss_is_not_finite_if_a_logit_is_not) {
  constexpr std::int64_t kVocabulary = 53, kPadded = 56;
  Values values = random_values(1, 0, kPadded);
  values[52] = kNan;
  Backend& be = *backend_;
  const Tensor logits = to_tensor(be, DType::f32, {1, kPadded}, values), targets = to_tensor(be, {1}, {0});
  const Tensor loss = be.allocate(DType::f32, {1}), rows = be.allocate(DType::f32, {1}),
               dloss = to_tensor(be, DType::f32, {1}, {1});
  be.run(CrossEntropyForward{loss, rows, logits, targets, kVocabulary});
  EXPECT_TRUE(std::isnan(to_value(be, loss))) << to_value(be, loss);
  be.run(CrossEntropyForwardBackward{loss, logits, rows, dloss, logits, targets, kVocabulary});
  EXPECT_TRUE(std::isnan(to_value(be, loss))) << to_value(be, loss);
}

TEST_P(ElementwiseOps, cross_entropy_may_overwrite_the_logits_with_their_gradient_in_one_pass) {
  Backend& be = *backend_;
  const Tensor logits = padded_logits(), targets = to_tensor(be, {kLogitRows}, {0, 100, 50, 50, 99, 1});
  const Tensor loss = be.allocate(DType::f32, {1}), rows = be.allocate(DType::f32, {kLogitRows}),
               dloss = be.allocate(DType::f32, {1}), dlogits = be.allocate(DType::f32, logits.shape());
  be.fill(dloss, 0.5);
  be.fill(dlogits, kNan);
  be.run(CrossEntropyForwardBackward{loss, dlogits, rows, dloss, logits, targets, kTokens});
  const double expected = to_value(be, loss);
  EXPECT_TRUE(std::isfinite(expected));
  be.fill(loss, kNan);
  be.run(CrossEntropyForwardBackward{loss, logits, rows, dloss, logits, targets, kTokens});
  EXPECT_EQ(to_value(be, loss), expected);
  const Values grad = to_values(be, dlogits);
  EXPECT_EQ(to_values(be, logits), grad);
  expect_zero_only_in_padding(grad);
}

TEST_P(ElementwiseOps, count_correct_counts_rows_whose_largest_logit_is_the_targets) {
  constexpr std::int64_t kVocabulary = 5;
  // Columns 5 and 6 (from 0) are padding.
  const Tensor logits =
      to_tensor(*backend_, DType::f32, {8, 7}, {0,  1,  2,    1,  0,  9, 9,     //
                                                5,  1,  2,    1,  0,  9, kNan,  //
                                                0,  1,  2,    1,  4,  9, 9,     //
                                                3,  3,  2,    3,  0,  9, 9,     // a tie: the first counts
                                                3,  3,  2,    3,  0,  9, 9,     //
                                                -9, -1, -2,   -3, -4, 0, 0,     //
                                                1,  2,  kNan, 4,  5,  9, 9,     //
                                                1,  2,  kNan, 4,  5,  9, 9});
  const Tensor count = backend_->allocate(DType::i32, {1});
  const auto counted = [&](const std::vector<std::int32_t>& targets) {
    backend_->fill(count, 77);
    backend_->run(CountCorrect{count, logits, to_tensor(*backend_, {8}, targets), kVocabulary});
    return to_host<std::int32_t>(*backend_, count)[0];
  };
  EXPECT_EQ(counted({2, 0, 4, 0, 0, 1, 4, 2}), 6);
  EXPECT_EQ(counted({1, 1, 2, 1, 3, 0, 3, 0}), 0);
  EXPECT_EQ(counted({2, 1, 3, 1, 3, 0, 3, 0}), 1);
}

TEST_P(ElementwiseOps, count_correct_agrees_with_the_definition_on_many_rows) {
  constexpr std::int64_t kRows = 613, kVocabulary = 300, kPadded = 384;
  Values values = random_values(1, 0, kRows * kPadded);
  std::vector<std::int32_t> targets = random_ids(1, 1, kRows, kVocabulary);
  int expected = 0;
  for (std::int64_t n = 0; n < kRows; ++n) {
    const auto row = values.begin() + n * kPadded;
    const auto largest = static_cast<std::int32_t>(std::max_element(row, row + kVocabulary) - row);
    if (n % 3 == 0) targets[n] = largest;
    if (n % 3 == 1) row[targets[n]] = row[largest] - 1e-3;  // slightly less than the largest
    expected += targets[n] == largest;
  }
  const Tensor count = backend_->allocate(DType::i32, {1});
  backend_->run(CountCorrect{count, to_tensor(*backend_, DType::f32, {kRows, kPadded}, values),
                             to_tensor(*backend_, {kRows}, targets), kVocabulary});
  EXPECT_EQ(to_host<std::int32_t>(*backend_, count)[0], expected);
}

// Ids of the shape (3, n/3) for which an embedding's gradient may be added in a wrong way.
std::vector<std::pair<const char*, std::vector<std::int32_t>>> skewed_ids(std::int32_t n, std::int32_t rows) {
  const std::vector<std::int32_t> some = random_ids(1, 5, n, rows), chance = random_ids(1, 6, n, 10);
  std::vector<std::int32_t> all_distinct, mostly_one, ends;
  for (std::int32_t i = 0; i < n; ++i) {
    // 7919 is a prime that divides none of the vocabularies below.
    all_distinct.push_back(static_cast<std::int32_t>(std::int64_t{i} * 7919 % rows));
    mostly_one.push_back(chance[i] == 0 ? some[i] : rows / 2);
    ends.push_back(some[i] % 2 == 0 ? 0 : rows - 1);
  }
  return {{"all equal", std::vector<std::int32_t>(n, rows - 1)},
          {"distinct, as far as there are enough", all_distinct},
          {"one most of the time", mostly_one},
          {"the ends of the vocabulary", ends},
          {"random", some}};
}

// dwte in f64, from the definition. Elements of dout are whole numbers, so that f32 sums are exact.
TEST_P(ElementwiseOps, embedding_backward_adds_the_rows_of_each_id_whatever_the_ids_are) {
  struct Size {
    std::int32_t tokens, rows;
    std::int64_t C;
  };
  // A GPU's blocks add 64 tokens and sort 1,024; ids have digits of 8 bits.
  for (const Size& s : {Size{3, 2, 4}, Size{63, 256, 4}, Size{66, 257, 3}, Size{2100, 300, 20},
                        Size{2100, 70000, 8}, Size{9000, 60000, 1}}) {
    std::vector<std::int32_t> numbers = random_ids(1, 7, s.tokens * s.C, 19);
    const Values values(numbers.begin(), numbers.end());
    const std::int64_t T = s.tokens / 3;
    const Tensor dout = to_tensor(*backend_, DType::f32, {3, T, s.C}, values);
    for (const auto& [name, ids] : skewed_ids(s.tokens, s.rows)) {
      Values expected(static_cast<std::size_t>(s.rows * s.C), 1);
      for (std::int64_t i = 0; i < s.tokens * s.C; ++i) expected[ids[i / s.C] * s.C + i % s.C] += values[i];
      const Tensor dwte = backend_->allocate(DType::f32, {s.rows, s.C});
      backend_->fill(dwte, 1);
      backend_->run(
          EmbeddingBackward{{dwte, GradMode::accumulate}, {}, dout, to_tensor(*backend_, {3, T}, ids)});
      EXPECT_EQ(to_values(*backend_, dwte), expected) << name << ", " << s.tokens << " of " << s.rows;
    }
  }
}

TEST_P(ElementwiseOps, embedding_backward_overwrites_the_rows_of_all_positions) {
  for (const std::int64_t C : {3, 8}) {
    const Tensor dout = backend_->allocate(DType::f32, {2, 2, C}),
                 dwpe = backend_->allocate(DType::f32, {4, C});
    backend_->fill(dout, 1.5);
    backend_->fill(dwpe, kNan);
    const Tensor ids = to_tensor(*backend_, {2, 2}, {0, 0, 0, 0});
    backend_->run(EmbeddingBackward{{}, {dwpe, GradMode::overwrite}, dout, ids});
    Values expected(static_cast<std::size_t>(4 * C));
    std::fill_n(expected.begin(), 2 * C, 3);
    EXPECT_EQ(to_values(*backend_, dwpe), expected);
    backend_->run(EmbeddingBackward{{}, {dwpe, GradMode::accumulate}, dout, ids});
    std::fill_n(expected.begin(), 2 * C, 6);
    EXPECT_EQ(to_values(*backend_, dwpe), expected);
  }
}

TEST_P(ElementwiseOps, dropout_keeps_what_its_definition_says) {
  constexpr std::int64_t kSize = 5000;
  for (const std::int64_t first : {1234567, 1234568}) {  // the second begins a block of four random numbers
    const Dropout dropout{0.25, {42, 5, 3}, first};
    const Tensor x = backend_->allocate(DType::f32, {kSize}), out = backend_->allocate(DType::f32, {kSize});
    backend_->fill(x, 3);
    backend_->run(DropoutForward{out, x, dropout});
    const Values values = to_values(*backend_, out);
    for (std::int64_t i = 0; i < kSize; ++i) {
      ASSERT_EQ(values[i], random_uniform(dropout.key, first + i) >= 0.25f ? 4 : 0) << i;
    }
  }
}

std::vector<BackendUnderTest> targets() {
  std::vector<BackendUnderTest> backends = backends_under_test();
  std::erase_if(backends, std::not_fn(&BackendUnderTest::has_own_kernels));
  return backends;
}

INSTANTIATE_TEST_SUITE_P(Ops, ElementwiseOps, testing::ValuesIn(targets()), test_name);

}  // namespace
}  // namespace stagegpt::test
