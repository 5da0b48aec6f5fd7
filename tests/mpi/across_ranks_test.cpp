// The ops and the model of tensor ranks, compared with the same on one rank.
#include <gtest/gtest.h>

#include "common/autograd/ops/cross_entropy.h"
#include "common/autograd/ops/embedding.h"
#include "common/comm/agreement.h"
#include "common/parallel/divided_gpt2.h"
#include "common/parallel/tensor_parallel.h"
#include "tests/support/communicators.h"
#include "tests/support/mpi_ranks.h"
#include "tests/support/refusal.h"
#include "tests/support/tensors.h"
#include "tests/support/tolerance.h"

namespace stagegpt::test {
namespace {

// The largest relative error of anything in a model of two layers. Largest measured: 1e-6.
constexpr double kModelLimit = 1e-5;

constexpr std::int64_t kC = 5;  // of the ops' cases

class AcrossRanksOf : public testing::TestWithParam<CommunicatorUnderTest> {
 protected:
  Tensor real(const Shape& shape, std::uint32_t stream) {
    return to_tensor(be_, DType::f32, shape, random_values(1, stream, shape.numel()));
  }
  Var leaf(const Tensor& value) { return {value, be_.zeros(value.dtype(), value.shape()), 0}; }
  // Rows [first, first + rows) of a matrix of C columns; zero beyond its end.
  static Values rows_of(const Values& matrix, std::int64_t C, std::int64_t first, std::int64_t rows) {
    Values out(static_cast<std::size_t>(rows * C));
    const std::int64_t begin = std::min<std::int64_t>(first * C, std::ssize(matrix)),
                       end = std::min<std::int64_t>((first + rows) * C, std::ssize(matrix));
    std::copy(matrix.begin() + begin, matrix.begin() + end, out.begin());
    return out;
  }

  // The rows of (2,T,kC) that each rank has. One rank has the tensor itself.
  Shape rows_shape(std::int64_t T) const {
    return n_ == 1 ? Shape{2, T, kC} : Shape{(2 * T + n_ - 1) / n_, kC};
  }

  const std::unique_ptr<Backend> backend_ = GetParam().make_backend();
  Backend& be_ = *backend_;
  const std::unique_ptr<Communicator> communicator_ = GetParam().make(be_);
  Communicator& ranks_ = *communicator_;
  const std::int64_t n_ = ranks_.size(), rank_ = ranks_.rank();
};

TEST_P(AcrossRanksOf, gathered_has_all_rows_and_gives_back_the_sum_of_their_gradients) {
  for (const std::int64_t T : {12, 7}) {
    const Shape shape{2, T, kC};
    const std::int64_t rows_each = (2 * T + n_ - 1) / n_;
    const Values all = random_values(1, 0, shape.numel());
    const Var rows =
        leaf(to_tensor(be_, DType::f32, rows_shape(T), rows_of(all, kC, rank_ * rows_each, rows_each)));
    Tape tape(be_);
    const Var out = gathered(tape, ranks_, rows, shape);
    EXPECT_EQ(out.value().shape(), shape);
    EXPECT_EQ(to_values(be_, out.value()), all);
    Values sum(all.size());
    for (std::uint32_t rank = 0; rank < static_cast<std::uint32_t>(n_); ++rank) {
      const Values gradient = random_values(2, rank, shape.numel());
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += gradient[i];
    }
    tape.backward({out}, {to_tensor(be_, DType::f32, shape,
                                    random_values(2, static_cast<std::uint32_t>(rank_), shape.numel()))});
    const Values expected = rows_of(sum, kC, rank_ * rows_each, rows_each);
    EXPECT_LE(relative_error(to_values(be_, rows.grad()), expected), error_limit(0, n_, DType::f32));
  }
}

TEST_P(AcrossRanksOf, scattered_sum_has_the_ranks_rows_and_gives_back_all_gradients) {
  for (const std::int64_t T : {12, 7}) {
    const Shape shape{2, T, kC};
    const std::int64_t rows_each = (2 * T + n_ - 1) / n_;
    Values sum(static_cast<std::size_t>(shape.numel()));
    for (std::uint32_t rank = 0; rank < static_cast<std::uint32_t>(n_); ++rank) {
      const Values summand = random_values(1, rank, shape.numel());
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += summand[i];
    }
    const Values own = random_values(1, static_cast<std::uint32_t>(rank_), shape.numel()),
                 gradient = random_values(2, 0, rows_each * n_ * kC);
    const Var x = leaf(to_tensor(be_, DType::f32, shape, own));
    Tape tape(be_);
    const Var out = scattered_sum(tape, ranks_, x);
    EXPECT_EQ(out.value().shape(), rows_shape(T));
    EXPECT_LE(relative_error(to_values(be_, out.value()), rows_of(sum, kC, rank_ * rows_each, rows_each)),
              error_limit(0, n_, DType::f32));
    EXPECT_EQ(to_values(be_, x.value()), own) << "another op may read the summand";
    tape.backward({out}, {to_tensor(be_, DType::f32, rows_shape(T),
                                    rows_of(gradient, kC, rank_ * rows_each, rows_each))});
    EXPECT_EQ(to_values(be_, x.grad()), rows_of(gradient, kC, 0, 2 * T));
  }
}

// 11 tokens: 4 ranks have 3, 3, 3 and 2 of them.
TEST_P(AcrossRanksOf, vocabulary_embedding_is_the_embedding_of_all_tokens) {
  constexpr std::int64_t kTokens = 11, T = 7;
  const std::int64_t rows_each = (2 * T + n_ - 1) / n_;
  const VocabularyPart part = vocabulary_part(kTokens, {ranks_.rank(), ranks_.size()});
  const Tensor ids = to_tensor(be_, {2, T}, random_ids(1, 0, 2 * T, kTokens));
  const Var wte = leaf(real({kTokens, kC}, 0)), wpe = leaf(real({T, kC}, 1)),
            own_wte = leaf(real({part.count, kC}, 9)), own_wpe = leaf(real({T, kC}, 1));
  be_.copy(own_wte.value(), wte.value().slice(part.first * kC, {part.count, kC}));
  Tape one(be_), many(be_);
  const Var whole = embedding(one, ids, wte, wpe);
  const Var rows = vocabulary_embedding(many, ranks_, ids, own_wte, rank_ == 0 ? own_wpe : Var(), part);
  EXPECT_LE(relative_error(to_values(be_, rows.value()),
                           rows_of(to_values(be_, whole.value()), kC, rank_ * rows_each, rows_each)),
            error_limit(0, 2, DType::f32));
  Values gradient = random_values(2, 0, 2 * T * kC);
  one.backward({whole}, {to_tensor(be_, DType::f32, {2, T, kC}, gradient)});
  many.backward({rows}, {to_tensor(be_, DType::f32, rows_shape(T),
                                   rows_of(gradient, kC, rank_ * rows_each, rows_each))});
  EXPECT_EQ(to_values(be_, own_wte.grad()), rows_of(to_values(be_, wte.grad()), kC, part.first, part.count));
  if (rank_ > 0) return;
  EXPECT_EQ(to_values(be_, own_wpe.grad()), to_values(be_, wpe.grad()));
}

TEST_P(AcrossRanksOf, vocabulary_cross_entropy_is_that_of_all_tokens_with_the_same_bits_on_every_rank) {
  constexpr std::int64_t kTokens = 37, T = 7, N = 2 * T;
  const VocabularyPart part = vocabulary_part(kTokens, {ranks_.rank(), ranks_.size()});
  const Tensor targets = to_tensor(be_, {2, T}, random_ids(1, 0, N, kTokens));
  const Values all = random_values(1, 0, N * kTokens);
  const auto own_columns = [&](const Values& matrix) {
    Values columns;
    for (std::int64_t n = 0; n < N; ++n) {
      const auto begin = matrix.begin() + n * kTokens + part.first;
      columns.insert(columns.end(), begin, begin + part.count);
    }
    return columns;
  };
  const Var logits = leaf(to_tensor(be_, DType::f32, {2, T, kTokens}, all)),
            own = leaf(to_tensor(be_, DType::f32, {2, T, part.count}, own_columns(all)));
  Tape one(be_, Tape::Mode::training, 1.5), many(be_, Tape::Mode::training, 1.5);
  const Var whole = cross_entropy(one, logits, targets, kTokens),
            loss = vocabulary_cross_entropy(many, ranks_, own, targets, part);
  const double value = to_value(be_, loss.value());
  EXPECT_NEAR(value, to_value(be_, whole.value()), error_limit(0, kTokens, DType::f32) * value);
  for (const double other : gather(ranks_.group(), value)) EXPECT_EQ(value, other);
  one.backward(whole);
  many.backward(loss);
  EXPECT_LE(relative_error(to_values(be_, own.grad()), own_columns(to_values(be_, logits.grad()))),
            error_limit(0, kTokens, DType::f32));
}

// One pass of a model with dropout: its loss, logits and gradients are those of one rank.
class ModelAcrossRanks : public AcrossRanksOf {
 protected:
  static Gpt2Config config(bool tied) {
    return {.vocab_size = 101,
            .block_size = 9,
            .n_layer = 2,
            .n_head = 12,  // as many as 1, 2, 3 and 4 ranks divide
            .n_embd = 24,
            .dropout = 0.2,
            .initializer_range = 0.2,
            .tie_word_embeddings = tied};
  }

  // The gradient of each parameter of a part, summed over ranks if all hold it, is that of the whole.
  void expect_gradients(const Parameters& own, const Parameters& whole) {
    const Tensor& grads = own.grads();
    ranks_.all_reduce(grads.slice(0, {shared_end(own.table())}))->wait();
    for (const Parameter& row : own.table().rows()) {
      const Parameter& from = whole.table()[static_cast<std::size_t>(row.number)];
      EXPECT_EQ(row.name, from.name);
      EXPECT_LE(relative_error(values_of(own.grads(), row), own_values(row, values_of(whole.grads(), from))),
                kModelLimit)
          << row.name;
    }
  }
  Values values_of(const Tensor& arena, const Parameter& row) {
    return to_values(be_, arena.slice(row.offset, row.shape));
  }
  static Values own_values(const Parameter& row, const Values& whole) {
    Values own(static_cast<std::size_t>(row.shape.numel()));
    row.for_each_run(0, row.shape.numel(), [&](std::int64_t to, std::int64_t from, std::int64_t n) {
      std::copy_n(whole.begin() + from, n, own.begin() + to);
    });
    return own;
  }
};

TEST_P(ModelAcrossRanks, starts_with_the_weights_of_one_rank) {
  Gpt2 one(be_, config(false));
  DividedGpt2 many(be_, config(false), Grid(ranks_, ranks_.size()));
  one.parameters().initialize(3);
  many.parameters().initialize(3);
  std::int64_t elements = 0;
  for (const Parameter& row : many.parameters().table().rows()) {
    const Parameter& from = one.parameters().table()[static_cast<std::size_t>(row.number)];
    EXPECT_EQ(values_of(many.parameters().weights(), row),
              own_values(row, values_of(one.parameters().weights(), from)))
        << row.name;
    if (!row.blocks.empty() || rank_ == 0) elements += row.shape.numel();
  }
  // Together the ranks have each element once.
  std::int64_t all = 0;
  for (const std::int64_t part : gather(ranks_.group(), elements)) all += part;
  EXPECT_EQ(all, one.parameters().table().numel());
}

TEST_P(ModelAcrossRanks, has_the_loss_and_gradients_of_one_rank) {
  for (const bool tied : {true, false}) {
    for (const Recompute recompute : {Recompute::none, Recompute::block}) {
      for (const std::int64_t T : {8, 7}) {
        Gpt2 one(be_, config(tied));
        DividedGpt2 many(be_, config(tied), Grid(ranks_, ranks_.size()));
        one.parameters().initialize(3);
        many.parameters().initialize(3);
        const Tensor ids = to_tensor(be_, {3, T}, random_ids(4, 0, 3 * T, 101)),
                     targets = to_tensor(be_, {3, T}, random_ids(4, 1, 3 * T, 101));
        const DropoutPosition position{.seed = 5, .step = 2, .first_sequence = 3};
        std::vector<double> losses;
        for (LanguageModel* model : {static_cast<LanguageModel*>(&one), static_cast<LanguageModel*>(&many)}) {
          model->parameters().clear_grads();
          Tape tape(be_);
          const Var loss = model->loss(tape, ids, targets, {.dropout = position, .recompute = recompute});
          tape.backward(loss);
          model->parameters().finish_grads();
          losses.push_back(to_value(be_, loss.value()));
        }
        EXPECT_NEAR(losses[1], losses[0], kModelLimit * losses[0]);
        expect_gradients(many.parameters(), one.parameters());

        Tape whole(be_, Tape::Mode::inference), parts(be_, Tape::Mode::inference);
        EXPECT_LE(relative_error(to_values(be_, many.logits(parts, ids).value()),
                                 to_values(be_, one.logits(whole, ids).value())),
                  kModelLimit);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(By, AcrossRanksOf, testing::ValuesIn(communicators_under_test()),
                         testing::PrintToStringParamName());
INSTANTIATE_TEST_SUITE_P(By, ModelAcrossRanks, testing::ValuesIn(communicators_under_test()),
                         testing::PrintToStringParamName());

TEST(Divisible, models_and_grids_are_refused_by_what_does_not_divide) {
  const Gpt2Config config{
      .vocab_size = 5, .block_size = 9, .n_layer = 1, .n_head = 12, .n_embd = 24, .n_inner = 20};
  const auto refusal = [&](int tensor_ranks) {
    return test::refusal([&] { require_divisible(config, tensor_ranks); });
  };
  EXPECT_EQ(refusal(2), "");
  EXPECT_EQ(refusal(5), "--tensor-parallel: 12 heads cannot be divided among 5 ranks");
  EXPECT_EQ(refusal(6), "--tensor-parallel: 20 channels of the MLP cannot be divided among 6 ranks");
  EXPECT_EQ(refusal(4), "--tensor-parallel: 5 tokens of the vocabulary cannot be divided among 4 ranks");
}

}  // namespace
}  // namespace stagegpt::test
