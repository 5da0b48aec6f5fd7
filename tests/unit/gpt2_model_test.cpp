#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "common/model/gpt2.h"
#include "stage0_serial/cpu_backend.h"
#include "stage0_serial/naive_backend.h"
#include "tests/support/tensors.h"
#include "tests/support/tolerance.h"

namespace stagegpt::test {
namespace {

constexpr std::int64_t kB = 2, kT = 17, kVocabulary = 101, kPadded = 128;
using Ids = std::vector<std::int32_t>;

Gpt2Config tiny(double dropout = 0) {
  return {.vocab_size = kVocabulary,
          .block_size = 20,
          .n_layer = 2,
          .n_head = 3,
          .n_embd = 48,
          .dropout = dropout};
}

// A batch in which only the ids below 50 occur.
Ids some_ids(std::int64_t sequences = kB) { return random_ids(5, 0, sequences * kT, 50); }
Ids some_targets(std::int64_t sequences = kB) { return random_ids(5, 1, sequences * kT, kVocabulary); }

// A model with the same weights in every dtype on every backend.
class Model {
 public:
  Model(Backend& backend, DType dtype, const Gpt2Config& config = tiny())
      : backend_(backend), gpt2_(backend, config, dtype) {
    for (std::size_t i = 0; i < table().size(); ++i) {
      const Parameter& row = table()[i];
      const double std = row.decays() ? 0.1 : 0.05;
      Values values = random_values(3, static_cast<std::uint32_t>(i), row.shape.numel(), std, row.init_mean);
      values.resize(static_cast<std::size_t>(row.arena_shape().numel()));  // zeros in the padding
      set_values(backend_, parameters().var(i).value(), values);
    }
  }

  Gpt2& gpt2() { return gpt2_; }
  Parameters& parameters() { return gpt2_.parameters(); }
  const ParameterTable& table() { return parameters().table(); }

  Values logits(const Ids& ids, Tape::Mode mode = Tape::Mode::inference,
                std::optional<DropoutPosition> position = std::nullopt) {
    Tape tape(backend_, mode);
    return to_values(backend_, gpt2_.logits(tape, tensor(ids), {.dropout = position}).value());
  }
  // Adds the gradients of scale · loss.
  void micro_step(const Ids& ids, const Ids& targets, double scale = 1,
                  std::optional<DropoutPosition> position = std::nullopt) {
    Tape tape(backend_, Tape::Mode::training, scale);
    tape.backward(gpt2_.loss(tape, tensor(ids), tensor(targets), {.dropout = position}));
  }
  Values grad(std::size_t i) { return to_values(backend_, parameters().var(i).grad()); }

 private:
  Tensor tensor(const Ids& ids) {
    return to_tensor(backend_, {static_cast<std::int64_t>(ids.size()) / kT, kT}, ids);
  }

  Backend& backend_;
  Gpt2 gpt2_;
};

// Compares the gradient of each parameter with that of the f64 model, by the norm-wise rule of tolerance.h.
void expect_right_gradients(Model& tested, Model& plain, Model& reference) {
  const std::int64_t K = std::max<std::int64_t>(kPadded, 4 * reference.gpt2().config().n_embd);
  for (std::size_t i = 0; i < reference.table().size(); ++i) {
    const Values expected = reference.grad(i);
    const double plain_error = relative_error(plain.grad(i), expected);
    EXPECT_LE(relative_error(tested.grad(i), expected), error_limit(plain_error, K, DType::f32))
        << reference.table()[i].name;
    EXPECT_LE(plain_error, plain_error_limit(DType::f32)) << reference.table()[i].name;
  }
}

class Gpt2Model : public testing::Test {
 protected:
  // The numbers of the parameters, in the order in which their gradients are ready.
  std::vector<int> ready_in_a_step(Model& model) {
    std::vector<int> ready;
    Tape tape(*cpu_);
    tape.on_leaf_ready([&](int id) { ready.push_back(id); });
    tape.backward(model.gpt2().loss(tape, to_tensor(*cpu_, {kB, kT}, some_ids()),
                                    to_tensor(*cpu_, {kB, kT}, some_targets())));
    return ready;
  }

  const std::unique_ptr<Backend> naive_ = make_naive_backend();
  const std::unique_ptr<Backend> cpu_ = make_cpu_backend(2);
};

// Changes one token at several positions of the second sequence. Only the logits from this position on may
// change.
void expect_causality(Backend& backend) {
  Model model(backend, DType::f32);
  const Values before = model.logits(some_ids());
  for (const std::int64_t t : {std::int64_t{0}, std::int64_t{1}, std::int64_t{8}, kT - 1}) {
    Ids ids = some_ids();
    ids[kT + t] = (ids[kT + t] + 1) % static_cast<std::int32_t>(kVocabulary);  // in the second sequence
    const Values after = model.logits(ids);
    for (std::int64_t row = 0; row < kB * kT; ++row) {
      const auto begin = row * kPadded, end = begin + kPadded;
      const bool same = std::equal(before.begin() + begin, before.begin() + end, after.begin() + begin);
      EXPECT_EQ(same, row < kT + t) << "row " << row << " after a change of token " << t;
    }
  }
}

TEST_F(Gpt2Model, a_token_changes_no_logits_before_it) {
  expect_causality(*naive_);
  expect_causality(*cpu_);
}

TEST_F(Gpt2Model, the_same_step_twice_gives_the_same_bits) {
  Model first(*cpu_, DType::f32, tiny(0.1)), second(*cpu_, DType::f32, tiny(0.1));
  for (Model* model : {&first, &second})
    model->micro_step(some_ids(), some_targets(), 1, DropoutPosition{1, 2, 3});
  EXPECT_EQ(to_values(*cpu_, first.parameters().grads()), to_values(*cpu_, second.parameters().grads()));
}

TEST_F(Gpt2Model, gradients_are_right_with_any_number_of_threads) {
  Model reference(*naive_, DType::f64), plain(*naive_, DType::f32);
  reference.micro_step(some_ids(), some_targets());
  plain.micro_step(some_ids(), some_targets());
  for (const int threads : {1, 2, 3}) {
    SCOPED_TRACE(concat(threads, " threads"));
    const std::unique_ptr<Backend> backend = make_cpu_backend(threads);
    Model tested(*backend, DType::f32);
    tested.micro_step(some_ids(), some_targets());
    expect_right_gradients(tested, plain, reference);
  }
}

TEST_F(Gpt2Model, micro_steps_add_up_to_the_batch_of_all_of_them) {
  Model reference(*naive_, DType::f64, tiny(0.1)), plain(*naive_, DType::f32, tiny(0.1));
  Model tested(*cpu_, DType::f32, tiny(0.1));
  constexpr std::int64_t kSequences = 4;
  const Ids ids = some_ids(kSequences), targets = some_targets(kSequences);
  for (Model* model : {&reference, &plain}) model->micro_step(ids, targets, 1, DropoutPosition{7, 1, 8});
  const auto middle = static_cast<std::ptrdiff_t>(ids.size() / 2);
  tested.micro_step({ids.begin(), ids.begin() + middle}, {targets.begin(), targets.begin() + middle}, 0.5,
                    DropoutPosition{7, 1, 8});
  tested.micro_step({ids.begin() + middle, ids.end()}, {targets.begin() + middle, targets.end()}, 0.5,
                    DropoutPosition{7, 1, 8 + kSequences / 2});
  expect_right_gradients(tested, plain, reference);
}

TEST_F(Gpt2Model, clearing_gradients_starts_a_new_sum) {
  Model once(*cpu_, DType::f32), again(*cpu_, DType::f32);
  once.micro_step(some_ids(), some_targets());
  again.micro_step(some_targets(), some_ids());
  again.parameters().clear_grads();
  again.micro_step(some_ids(), some_targets());
  EXPECT_EQ(to_values(*cpu_, once.parameters().grads()), to_values(*cpu_, again.parameters().grads()));
}

TEST_F(Gpt2Model, the_tied_head_gives_gradients_to_tokens_that_do_not_occur_and_none_to_the_padding) {
  Model model(*cpu_, DType::f32);
  model.micro_step(some_ids(), some_targets());
  const Values dwte = model.grad(0);
  const std::int64_t C = model.gpt2().config().n_embd;
  for (std::int64_t row = 0; row < kPadded; ++row) {
    double norm = 0;
    for (std::int64_t c = 0; c < C; ++c) norm += std::abs(dwte[row * C + c]);
    EXPECT_EQ(norm == 0, row >= kVocabulary) << "row " << row;
  }
}

TEST_F(Gpt2Model, the_tied_weight_is_ready_once_and_last) {
  Model model(*cpu_, DType::f32);
  const std::vector<int> ready = ready_in_a_step(model);
  ASSERT_EQ(ready.size(), model.table().size());
  EXPECT_EQ(std::set<int>(ready.begin(), ready.end()).size(), ready.size());
  const std::set<int> last(ready.end() - 2, ready.end());
  EXPECT_EQ(last, (std::set<int>{model.table().find("wte.weight"), model.table().find("wpe.weight")}));
}

TEST_F(Gpt2Model, an_untied_head_has_its_own_gradient_and_is_ready_first) {
  Gpt2Config config = tiny();
  config.tie_word_embeddings = false;
  Model model(*cpu_, DType::f32, config);
  const std::vector<int> ready = ready_in_a_step(model);
  const int head = model.table().find("lm_head.weight");
  ASSERT_EQ(ready.size(), model.table().size());
  EXPECT_EQ(ready.front(), head);
  const Values dwte = model.grad(0), dhead = model.grad(static_cast<std::size_t>(head));
  const std::int64_t C = config.n_embd;
  const auto norm = [&](const Values& grad, std::int64_t row) {
    double sum = 0;
    for (std::int64_t c = 0; c < C; ++c) sum += std::abs(grad[row * C + c]);
    return sum;
  };
  const Ids ids = some_ids();
  for (std::int64_t row = 0; row < kPadded; ++row) {
    EXPECT_EQ(norm(dwte, row) > 0, std::ranges::find(ids, row) != ids.end()) << "row " << row;
    EXPECT_EQ(norm(dhead, row) > 0, row < kVocabulary) << "row " << row;
  }
}

TEST_F(Gpt2Model, logits_of_the_padding_are_zero_and_its_loss_starts_at_that_of_chance) {
  Gpt2 gpt2(*cpu_, tiny());
  gpt2.parameters().initialize(1);
  Tape tape(*cpu_, Tape::Mode::inference);
  const Tensor ids = to_tensor(*cpu_, {kB, kT}, some_ids()),
               targets = to_tensor(*cpu_, {kB, kT}, some_targets());
  const Values logits = to_values(*cpu_, gpt2.logits(tape, ids).value());
  for (std::int64_t row = 0; row < kB * kT; ++row) {
    for (std::int64_t v = kVocabulary; v < kPadded; ++v) ASSERT_EQ(logits[row * kPadded + v], 0);
  }
  EXPECT_NEAR(to_value(*cpu_, gpt2.loss(tape, ids, targets).value()), std::log(kVocabulary), 0.1);
}

TEST_F(Gpt2Model, inference_gives_the_logits_of_training) {
  Model model(*cpu_, DType::f32);
  EXPECT_EQ(model.logits(some_ids(), Tape::Mode::inference), model.logits(some_ids(), Tape::Mode::training));
}

TEST_F(Gpt2Model, drops_only_where_training_says_so) {
  Model with(*naive_, DType::f32, tiny(0.2)), without(*naive_, DType::f32);
  auto logits = [](Model& model, std::optional<DropoutPosition> position) {
    return model.logits(some_ids(), Tape::Mode::inference, position);
  };
  const Values plain = logits(without, std::nullopt), dropped = logits(with, DropoutPosition{1, 2, 3});
  EXPECT_EQ(logits(with, std::nullopt), plain);
  EXPECT_EQ(logits(without, DropoutPosition{1, 2, 3}), plain);
  EXPECT_NE(dropped, plain);
  EXPECT_EQ(logits(with, DropoutPosition{1, 2, 3}), dropped);
  EXPECT_NE(logits(with, DropoutPosition{9, 2, 3}), dropped);
  EXPECT_NE(logits(with, DropoutPosition{1, 9, 3}), dropped);
  EXPECT_NE(logits(with, DropoutPosition{1, 2, 9}), dropped);
}

TEST_F(Gpt2Model, a_sequence_meets_the_same_dropout_in_any_batch) {
  Model model(*naive_, DType::f32, tiny(0.2));
  const Ids ids = some_ids();
  Values both = model.logits(ids, Tape::Mode::inference, DropoutPosition{1, 2, 10});
  const Values second =
      model.logits({ids.begin() + kT, ids.end()}, Tape::Mode::inference, DropoutPosition{1, 2, 11});
  EXPECT_EQ(Values(both.begin() + kT * kPadded, both.end()), second);
}

TEST_F(Gpt2Model, after_its_first_step_takes_no_memory_from_the_system) {
  Model model(*cpu_, DType::f32, tiny(0.1));
  auto step = [&](std::uint32_t number) {
    model.parameters().clear_grads();
    model.micro_step(some_ids(), some_targets(), 1, DropoutPosition{1, number, 0});
    model.parameters().finish_grads();
    return cpu_->memory_stats();
  };
  const MemoryStats first = step(0);
  for (const std::uint32_t number : {1, 2, 3}) {
    const MemoryStats later = step(number);
    EXPECT_EQ(later.source_allocations, first.source_allocations);
    EXPECT_EQ(later.bytes_in_use, first.bytes_in_use);
    EXPECT_EQ(later.peak_bytes_in_use, first.peak_bytes_in_use);
  }
}

TEST_F(Gpt2Model, refuses_more_tokens_than_its_context_and_heads_that_do_not_divide) {
  Model model(*naive_, DType::f32);
  Tape tape(*naive_);
  EXPECT_THROW(model.gpt2().logits(tape, naive_->zeros(DType::i32, {1, 21})), InternalError);
  EXPECT_NO_THROW(model.gpt2().logits(tape, naive_->zeros(DType::i32, {1, 20})));
  Gpt2Config config = tiny();
  config.n_head = 5;
  EXPECT_THROW(config.validate(), UserError);
  EXPECT_NO_THROW(tiny().validate());
}

}  // namespace
}  // namespace stagegpt::test
