// Ops on a part of the vocabulary or of the heads, as tensor ranks compute them, on every backend. All parts
// together are the op on the whole.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "common/autograd/ops/attention.h"
#include "common/autograd/ops/cross_entropy.h"
#include "common/autograd/ops/dropout.h"
#include "common/autograd/ops/embedding.h"
#include "common/backend/ops/elementwise.h"
#include "tests/support/backends.h"
#include "tests/support/tensors.h"
#include "tests/support/tolerance.h"

namespace stagegpt::test {
namespace {

constexpr std::int64_t kB = 2, kT = 12, kN = kB * kT;

// Columns [first, first + count) of a matrix of `columns` columns, in rows of `padded` with `padding` behind.
Values columns_of(const Values& matrix, std::int64_t columns, std::int64_t first, std::int64_t count,
                  std::int64_t padded, double padding = 0) {
  Values out;
  for (std::size_t row = 0; row < matrix.size(); row += static_cast<std::size_t>(columns)) {
    const auto begin = matrix.begin() + static_cast<std::ptrdiff_t>(row) + first;
    out.insert(out.end(), begin, begin + count);
    out.insert(out.end(), static_cast<std::size_t>(padded - count), padding);
  }
  return out;
}

struct PartsTarget {
  const BackendUnderTest* backend;
  DType dtype;
};

class PartsOfOps : public testing::TestWithParam<PartsTarget> {
 protected:
  Tensor real(const Shape& shape, std::uint32_t stream) {
    return to_tensor(be_, dtype_, shape, random_values(1, stream, shape.numel()));
  }
  // The same elements up to rounding.
  void expect_close(const Tensor& got, const Values& expected, std::int64_t terms) {
    EXPECT_LE(relative_error(to_values(be_, got), expected), error_limit(0, terms, dtype_));
  }

  const std::unique_ptr<Backend> backend_ = GetParam().backend->make();
  Backend& be_ = *backend_;
  const DType dtype_ = GetParam().dtype;
};

TEST_P(PartsOfOps, ids_are_those_of_the_part_or_absent) {
  const Tensor in = to_tensor(be_, {2, 3}, {0, 6, 7, 9, 10, 50}), out = be_.allocate(DType::i32, {2, 3});
  be_.run(IdsInPart{out, in, 7, 3, 5});
  EXPECT_EQ(to_host<std::int32_t>(be_, out), (std::vector<std::int32_t>{5, 5, 0, 2, 5, 5}));
}

// 11 tokens: 4, 4 and 3, in tables of 6 rows. The positions are in the first part.
TEST_P(PartsOfOps, embeddings_add_up_to_that_of_all_tokens) {
  constexpr std::int64_t kTokens = 11, kPart = 4, kRows = 6;
  for (const std::int64_t C : {3, 8}) {
    const Tensor ids = to_tensor(be_, {kB, kT}, random_ids(2, 0, kN, kTokens)),
                 own_ids = be_.allocate(DType::i32, {kB, kT}), wte = real({kTokens, C}, 0),
                 wpe = real({kT, C}, 1), dout = real({kB, kT, C}, 2), out = be_.allocate(dtype_, {kB, kT, C}),
                 dwte = be_.allocate(statistics_dtype(dtype_), {kTokens, C}),
                 own_dwte = be_.allocate(statistics_dtype(dtype_), {kRows, C});
    be_.run(EmbeddingForward{out, ids, wte, wpe, {}});
    be_.run(EmbeddingBackward{{dwte, GradMode::overwrite}, {}, dout, ids});
    const Values expected = to_values(be_, out), expected_dwte = to_values(be_, dwte);
    Values sum(expected.size());
    for (std::int64_t first = 0; first < kTokens; first += kPart) {
      const std::int64_t count = std::min(kPart, kTokens - first);
      const Tensor own_wte = be_.zeros(dtype_, {kRows, C});
      be_.copy(own_wte.slice(0, {count, C}), wte.slice(first * C, {count, C}));
      be_.run(IdsInPart{own_ids, ids, first, count, kRows});
      be_.run(EmbeddingForward{out, own_ids, own_wte, first == 0 ? wpe : Tensor(), {}});
      const Values part = to_values(be_, out);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];

      for (const GradMode mode : {GradMode::overwrite, GradMode::accumulate}) {
        be_.run(EmbeddingBackward{{own_dwte, mode}, {}, dout, own_ids});
        Values rows(expected_dwte.begin() + first * C, expected_dwte.begin() + (first + count) * C);
        if (mode == GradMode::accumulate) std::ranges::for_each(rows, [](double& x) { x *= 2; });
        rows.resize(static_cast<std::size_t>(kRows * C));  // no gradient beyond the part
        expect_close(own_dwte, rows, kN);
      }
    }
    EXPECT_LE(relative_error(sum, expected), unit_roundoff(dtype_));
  }
}

TEST_P(PartsOfOps, cross_entropies_combine_to_that_of_all_tokens) {
  constexpr std::int64_t kTokens = 37, kPart = 16, kParts = 3, kPadded = 24;
  const DType statistics = statistics_dtype(dtype_);
  const Tensor logits = real({kB, kT, kTokens}, 0),
               targets = to_tensor(be_, {kB, kT}, random_ids(3, 0, kN, kTokens)),
               loss = be_.allocate(statistics, {1}), lse = be_.allocate(statistics, {kN}),
               dloss = to_tensor(be_, statistics, {1}, {1.5}), dlogits = be_.allocate(dtype_, logits.shape());
  be_.run(CrossEntropyForward{loss, lse, logits, targets, kTokens});
  be_.run(CrossEntropyBackward{dlogits, dloss, logits, lse, targets, kTokens});
  const Values whole = to_values(be_, logits), dwhole = to_values(be_, dlogits),
               expected_lse = to_values(be_, lse);
  const double expected_loss = to_value(be_, loss);

  const Tensor parts = be_.allocate(statistics, {kParts, 2, kN});
  std::vector<Tensor> own_logits, own_targets;
  for (std::int64_t r = 0; r < kParts; ++r) {
    const std::int64_t first = r * kPart, count = std::min(kPart, kTokens - first);
    // The padding is larger than all logits: it must not be read.
    own_logits.push_back(
        to_tensor(be_, dtype_, {kB, kT, kPadded}, columns_of(whole, kTokens, first, count, kPadded, 1000)));
    own_targets.push_back(be_.allocate(DType::i32, {kB, kT}));
    be_.run(IdsInPart{own_targets.back(), targets, first, count, kPadded});
    be_.run(CrossEntropyPartForward{parts.slice(2 * r * kN, {kN}), parts.slice((2 * r + 1) * kN, {kN}),
                                    own_logits.back(), own_targets.back(), count});
  }
  be_.run(CrossEntropyOfParts{loss, lse, parts});
  EXPECT_NEAR(to_value(be_, loss), expected_loss, error_limit(0, kTokens, DType::f32) * expected_loss);
  EXPECT_LE(relative_error(to_values(be_, lse), expected_lse), error_limit(0, kTokens, DType::f32));
  for (std::int64_t r = 0; r < kParts; ++r) {
    const std::int64_t first = r * kPart, count = std::min(kPart, kTokens - first);
    const Tensor& own = own_logits[static_cast<std::size_t>(r)];
    be_.run(CrossEntropyBackward{own, dloss, own, lse, own_targets[static_cast<std::size_t>(r)], count});
    expect_close(own, columns_of(dwhole, kTokens, first, count, kPadded), kTokens);
  }
}

// Three parts of six heads, with T a multiple of four or not.
TEST_P(PartsOfOps, attention_of_some_heads_drops_what_that_of_all_heads_drops) {
  constexpr std::int64_t kHeads = 6, kParts = 3, kOwn = kHeads / kParts, HS = 4, C = kHeads * HS,
                         c = kOwn * HS;
  for (const std::int64_t T : {12, 7}) {
    const Tensor qkv = real({kB, T, 3 * C}, 0), dout = real({kB, T, C}, 1),
                 out = be_.allocate(dtype_, dout.shape()),
                 lse = be_.allocate(statistics_dtype(dtype_), {kB, kHeads, T}),
                 dqkv = be_.allocate(dtype_, qkv.shape());
    const Dropout dropout{0.4, {3, 5, 99}, 8};
    be_.run(AttentionForward{out, lse, qkv, kHeads, 0.5, dropout});
    be_.run(AttentionBackward{{dqkv, GradMode::overwrite}, dout, out, lse, qkv, kHeads, 0.5, dropout});
    const Values all_qkv = to_values(be_, qkv), all_dout = to_values(be_, dout),
                 all_out = to_values(be_, out), all_dqkv = to_values(be_, dqkv);
    for (std::int64_t r = 0; r < kParts; ++r) {
      // The part's columns of queries, keys and values: the matrix has three times as many rows of C columns.
      const auto own_of = [&](const Values& matrix) { return columns_of(matrix, C, r * c, c, c); };
      const Tensor own_qkv = to_tensor(be_, dtype_, {kB, T, 3 * c}, own_of(all_qkv)),
                   own_dout = to_tensor(be_, dtype_, {kB, T, c}, own_of(all_dout)),
                   own_out = be_.allocate(dtype_, own_dout.shape()),
                   own_lse = be_.allocate(lse.dtype(), {kB, kOwn, T}),
                   own_dqkv = be_.allocate(dtype_, own_qkv.shape());
      Dropout own = dropout;
      own.run = kOwn * T * T;
      own.stride = kHeads * T * T;
      own.first_element += r * own.run;
      be_.run(AttentionForward{own_out, own_lse, own_qkv, kOwn, 0.5, own});
      be_.run(AttentionBackward{
          {own_dqkv, GradMode::overwrite}, own_dout, own_out, own_lse, own_qkv, kOwn, 0.5, own});
      expect_close(own_out, own_of(all_out), T);
      expect_close(own_dqkv, own_of(all_dqkv), T);
    }
  }
}

TEST_P(PartsOfOps, dropout_of_a_part_drops_what_that_of_the_whole_drops) {
  constexpr std::int64_t kRun = 10, kStride = 35, kRuns = 40, kFirst = 7;
  const Tensor whole = be_.allocate(dtype_, {kStride * kRuns}), part = be_.allocate(dtype_, {kRun * kRuns});
  for (const Tensor& tensor : {whole, part}) be_.fill(tensor, 1);
  Dropout dropout{0.3, {1, 2, 3}, 1000};
  be_.run(DropoutForward{whole, whole, dropout});
  dropout.first_element += kFirst;
  dropout.run = kRun;
  dropout.stride = kStride;
  be_.run(DropoutForward{part, part, dropout});
  EXPECT_EQ(to_values(be_, part), columns_of(to_values(be_, whole), kStride, kFirst, kRun, kRun));
}

std::vector<PartsTarget> parts_targets() {
  std::vector<PartsTarget> targets;
  for (const BackendUnderTest& backend : backends_under_test()) {
    if (!backend.runs_models()) continue;
    for (const DType dtype : backend.dtypes) targets.push_back({&backend, dtype});
  }
  return targets;
}

std::string parts_test_name(const testing::TestParamInfo<PartsTarget>& info) {
  return concat(info.param.backend->name, '_', info.param.dtype);
}
INSTANTIATE_TEST_SUITE_P(Ops, PartsOfOps, testing::ValuesIn(parts_targets()), parts_test_name);

}  // namespace
}  // namespace stagegpt::test
