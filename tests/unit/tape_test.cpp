// The tape, on small ops that the tests define.
#include <gtest/gtest.h>

#include "common/autograd/ops/cross_entropy.h"
#include "common/autograd/ops/layernorm.h"
#include "common/autograd/ops/linear.h"
#include "common/backend/ops/elementwise.h"
#include "stage0_serial/naive_backend.h"
#include "tests/support/op_recorder.h"
#include "tests/support/tensors.h"

namespace stagegpt::test {
namespace {

using Names = std::vector<std::string>;

class TapeTest : public testing::Test {
 protected:
  Tensor tensor(const Values& values) {
    return to_tensor(be_, DType::f64, {static_cast<std::int64_t>(values.size())}, values);
  }
  Var leaf(const Values& values, int id = -1) {
    return {tensor(values), tensor(Values(values.size(), -99)), id};
  }
  Values values(const Tensor& x) { return to_values(be_, x); }

  // Σ factor·x. Its gradient is `factor`, in a buffer that the closure keeps.
  Var weighted_sum(Tape& tape, const Var& x, const Values& factor) {
    const Values numbers = values(x.value());
    double sum = 0;
    for (std::size_t i = 0; i < numbers.size(); ++i) sum += factor[i] * numbers[i];
    return tape.record("weighted_sum", {x}, tensor({sum}),
                       [grad = tensor(factor)](const Tensor&, Grads g) { g.give(0, grad); });
  }
  // k·x, which writes or adds its gradient into the buffer that it is given.
  Var times(Tape& tape, const Var& x, double k) {
    Values out = values(x.value());
    for (double& value : out) value *= k;
    return tape.record("times", {x}, tensor(out), [this, k](const Tensor& dout, Grads g) {
      const Grad dx = g[0];
      if (!dx.wanted()) return;
      Values numbers = values(dout), before(numbers.size());
      if (dx.accumulates()) before = values(dx.tensor);
      for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = before[i] + k * numbers[i];
      set_values(be_, dx.tensor, numbers);
    });
  }
  // x + y, which gives both the same gradient.
  Var sum(Tape& tape, const Var& x, const Var& y) {
    Tensor out = be_.allocate(DType::f64, x.value().shape());
    be_.run(Add{out, x.value(), y.value()});
    return tape.record("sum", {x, y}, out, [](const Tensor& dout, Grads g) {
      g.give(0, dout);
      g.give(1, dout);
    });
  }

  const std::unique_ptr<Backend> backend_ = make_naive_backend();
  Backend& be_ = *backend_;
};

// A leaf has a gradient of its shape and dtype; one in bf16 may have it in f32.
TEST_F(TapeTest, leaves_have_gradients_that_fit) {
  const auto make = [&](DType value, DType grad, std::int64_t n = 3) {
    return [&be = be_, value, grad, n] { Var(be.allocate(value, {3}), be.allocate(grad, {n})); };
  };
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) EXPECT_NO_THROW(make(dtype, dtype)());
  EXPECT_NO_THROW(make(DType::bf16, DType::f32)());
  EXPECT_THROW(make(DType::bf16, DType::f64)(), InternalError);
  EXPECT_THROW(make(DType::f32, DType::f64)(), InternalError);
  EXPECT_THROW(make(DType::f64, DType::f32)(), InternalError);
  EXPECT_THROW(make(DType::f32, DType::f32, 4)(), InternalError);
}

TEST_F(TapeTest, backward_runs_in_the_reverse_order_of_forward) {
  auto matrix = [&](Shape shape, std::uint32_t stream) {
    const Tensor value = to_tensor(be_, DType::f64, shape, random_values(1, stream, shape.numel()));
    return Var(value, be_.allocate(DType::f64, shape));
  };
  const Var x = matrix({1, 3, 4}, 3), w = matrix({4}, 0), bias = matrix({4}, 1), head = matrix({8, 4}, 2);
  const Tensor targets = to_tensor(be_, {1, 3}, {0, 1, 2});
  OpRecorder recorder(be_);
  Tape tape(be_);
  const Var loss =
      cross_entropy(tape, linear(tape, layernorm(tape, x, w, bias, 1e-5), head, Var()), targets, 8);
  EXPECT_EQ(tape.op_names(), (Names{"layernorm", "linear", "cross_entropy"}));
  EXPECT_EQ(recorder.take(), (Names{"layernorm_forward", "linear_forward", "cross_entropy_forward"}));
  tape.backward(loss);
  EXPECT_EQ(recorder.take(),
            (Names{"fill", "cross_entropy_backward", "linear_backward", "layernorm_backward"}));
  EXPECT_TRUE(tape.op_names().empty());
}

// A loss of linear(x, head), of which the head alone needs a gradient.
TEST_F(TapeTest, the_loss_of_a_tape_has_no_backward_op_left) {
  const Var head(tensor({1, 2, 3}).view({3, 1}), be_.zeros(DType::f64, {3, 1}));
  const Var x(tensor({1, 2}).view({1, 2, 1}));
  const Tensor targets = to_tensor(be_, {1, 2}, {0, 2});
  OpRecorder recorder(be_);
  Tape tape(be_, Tape::Mode::training, 0.5);
  const Var loss = cross_entropy_loss(tape, linear(tape, x, head, Var()), targets, 3);
  EXPECT_EQ(tape.op_names(), (Names{"linear", "cross_entropy"}));
  EXPECT_EQ(recorder.take(), (Names{"linear_forward", "fill", "cross_entropy_forward_backward"}));
  tape.backward(loss);
  EXPECT_EQ(recorder.take(), Names{"linear_backward"});
}

TEST_F(TapeTest, the_loss_of_a_tape_overwrites_logits_that_nobody_else_has) {
  constexpr std::int64_t kVocabulary = 1000;
  const auto memory_for_the_loss = [&](bool keep) {
    Tape tape(be_);
    Var logits = times(tape, leaf(Values(kVocabulary, 1)), 1);
    const Var kept = keep ? logits : Var();
    const Tensor target = to_tensor(be_, {1}, {3});
    const std::size_t before = be_.memory_stats().bytes_in_use;
    const Var loss = cross_entropy_loss(tape, std::move(logits), target, kVocabulary);
    const std::size_t after = be_.memory_stats().bytes_in_use;
    if (keep) {
      EXPECT_EQ(values(kept.value()), Values(kVocabulary, 1));
    }
    return after - before;
  };
  EXPECT_LT(memory_for_the_loss(false), kVocabulary * sizeof(double));
  EXPECT_GE(memory_for_the_loss(true), kVocabulary * sizeof(double));
}

TEST_F(TapeTest, a_watch_sees_logits_as_an_output_and_not_after_they_have_been_overwritten) {
  Tape tape(be_);
  Values logits;
  bool has_value = true;
  tape.on_op([&](std::string_view op, std::span<const Var> inputs, std::span<const Var> outs) {
    if (op == std::string("times")) logits = values(outs[0].value());
    if (op == std::string("cross_entropy")) has_value = inputs[0].value().defined();
  });
  cross_entropy_loss(tape, times(tape, leaf({1, 2, 3}), 2), to_tensor(be_, {1}, {1}), 3);
  EXPECT_EQ(logits, (Values{2, 4, 6}));
  EXPECT_FALSE(has_value);
}

TEST_F(TapeTest, the_loss_of_an_inference_tape_leaves_the_logits) {
  Tape tape(be_, Tape::Mode::inference);
  Var logits = leaf({1, 2, 3});
  const Tensor value = logits.value(), target = to_tensor(be_, {1}, {1});
  OpRecorder recorder(be_);
  cross_entropy_loss(tape, std::move(logits), target, 3);
  EXPECT_EQ(recorder.take(), Names{"cross_entropy_forward"});
  EXPECT_EQ(values(value), (Values{1, 2, 3}));
}

TEST_F(TapeTest, the_loss_of_a_tape_is_used_by_no_op_and_is_the_only_one) {
  const Tensor target = to_tensor(be_, {1}, {1});
  {
    Tape tape(be_);
    const Var loss = cross_entropy_loss(tape, leaf({1, 2, 3}), target, 3);
    EXPECT_THROW(tape.backward(times(tape, loss, 2)), InternalError);
  }
  {
    Tape tape(be_);
    const Var loss = cross_entropy_loss(tape, leaf({1, 2, 3}), target, 3);
    EXPECT_THROW(cross_entropy_loss(tape, leaf({1, 2, 3}), target, 3), InternalError);
  }
  Tape tape(be_);
  const Var x = leaf({1, 2, 3}), other = cross_entropy(tape, x, target, 3);
  cross_entropy_loss(tape, x, target, 3);
  EXPECT_THROW(tape.backward(other), InternalError);
}

TEST_F(TapeTest, what_a_node_saved_is_freed_as_soon_as_its_backward_has_run) {
  auto saved_first = std::make_shared<int>(), saved_second = std::make_shared<int>();
  const std::weak_ptr<int> first = saved_first, second = saved_second;
  const Var x = leaf({1});
  Tape tape(be_);
  const Var y =
      tape.record("first", {x}, tensor({2}), [saved_first, first, second](const Tensor& dout, Grads g) {
        EXPECT_FALSE(first.expired());
        EXPECT_TRUE(second.expired());
        g.give(0, dout);
      });
  const Var loss =
      tape.record("second", {y}, tensor({3}), [saved_second, first](const Tensor& dout, Grads g) {
        EXPECT_FALSE(first.expired());
        g.give(0, dout);
      });
  saved_first.reset();
  saved_second.reset();
  EXPECT_FALSE(second.expired());
  tape.backward(loss);
  EXPECT_TRUE(first.expired());
  EXPECT_EQ(values(x.grad()), Values{1});
}

TEST_F(TapeTest, gradients_inside_the_tape_are_freed_on_the_way) {
  constexpr int kOps = 20;
  constexpr std::int64_t kSize = 100000;
  const Var x = leaf(Values(kSize, 1));
  Tape tape(be_);
  Var y = times(tape, x, 1);
  for (int i = 0; i < kOps; ++i) y = times(tape, y, 1);
  const Var loss = weighted_sum(tape, y, Values(kSize, 1));
  y = Var();
  const std::size_t before = be_.memory_stats().bytes_in_use;
  tape.backward(loss);
  // At any time, only the gradients of one op's output and of its input exist.
  EXPECT_LT(be_.memory_stats().peak_bytes_in_use, before + 3 * x.value().bytes());
}

TEST_F(TapeTest, a_leaf_used_twice_is_ready_once_after_its_last_contribution) {
  const Var a = leaf({1, 2}, 7), b = leaf({3, 4}, 8);
  Tape tape(be_);
  const Var first = sum(tape, times(tape, a, 2), b);
  const Var loss = weighted_sum(tape, sum(tape, first, times(tape, a, 3)), {1, 10});
  std::vector<int> ready;
  tape.on_leaf_ready([&](int id) {
    ready.push_back(id);
    EXPECT_EQ(values((id == 7 ? a : b).grad()), (id == 7 ? Values{5, 50} : Values{1, 10}));
  });
  tape.backward(loss);
  EXPECT_EQ(ready, (std::vector{8, 7}));  // b has one consumer, recorded between the two of a
}

TEST_F(TapeTest, leaves_are_ready_in_the_order_of_backward) {
  const Var a = leaf({1}, 0), b = leaf({1}, 1), c = leaf({1}, 2);
  Tape tape(be_);
  const Var x = times(tape, a, 1), y = times(tape, b, 1), z = times(tape, c, 1);
  const Var loss = sum(tape, sum(tape, x, y), z);
  std::vector<int> ready;
  tape.on_leaf_ready([&](int id) { ready.push_back(id); });
  tape.backward(loss);
  EXPECT_EQ(ready, (std::vector{2, 1, 0}));
}

TEST_F(TapeTest, a_branch_that_does_not_reach_the_loss_gives_no_gradient) {
  const Var a = leaf({1}, 0), b = leaf({1}, 1);
  Tape tape(be_);
  const Var loss = weighted_sum(tape, a, {2});
  times(tape, sum(tape, times(tape, a, 5), b), 3);
  tape.backward(loss);
  EXPECT_EQ(values(a.grad()), Values{2});
  EXPECT_FALSE(b.grad_written());
  EXPECT_FALSE(b.grad().defined());
}

TEST_F(TapeTest, a_leaf_that_no_gradient_reaches_is_ready_with_zeros) {
  const Var a = leaf({1}, 0), b = leaf({1}, 1);
  {
    Tape earlier(be_);  // leaves a 7 in the gradient of b
    earlier.backward(weighted_sum(earlier, b, {7}));
    b.clear_grad();
  }
  Tape tape(be_);
  const Var loss = weighted_sum(tape, a, {2});
  times(tape, sum(tape, times(tape, a, 5), b), 3);
  std::vector<int> ready;
  tape.on_leaf_ready([&](int id) {
    ready.push_back(id);
    if (id == 1) {
      EXPECT_EQ(values(b.grad()), Values{0});
    }
  });
  tape.backward(loss);
  EXPECT_EQ(ready, (std::vector{1, 0}));
}

TEST_F(TapeTest, a_tape_given_up_before_its_backward_does_not_hold_leaves_back) {
  const Var a = leaf({1}, 0);
  {
    Tape given_up(be_);
    weighted_sum(given_up, a, {1});
  }
  Tape tape(be_);
  int ready = 0;
  tape.on_leaf_ready([&](int) { ++ready; });
  tape.backward(weighted_sum(tape, a, {2}));
  EXPECT_EQ(ready, 1);
}

TEST_F(TapeTest, has_one_backward) {
  const Var a = leaf({1});
  Tape tape(be_);
  const Var loss = weighted_sum(tape, a, {2});
  tape.backward(loss);
  EXPECT_THROW(tape.backward(loss), InternalError);
}

TEST_F(TapeTest, a_gradient_given_to_two_inputs_is_copied_before_one_is_added_to) {
  const Var a = leaf({1, 1}), b = leaf({1, 1});
  Tape tape(be_);
  const Var x = times(tape, a, 1), y = times(tape, b, 1);
  const Var extra = weighted_sum(tape, x, {100, 200});  // recorded first: its gradient arrives last
  const Var loss = sum(tape, weighted_sum(tape, sum(tape, x, y), {1, 2}), extra);
  tape.backward(loss);
  EXPECT_EQ(values(a.grad()), (Values{101, 202}));
  EXPECT_EQ(values(b.grad()), (Values{1, 2}));
}

// The owner of a leaf looks for the gradient in the tensor that it gave to the leaf.
TEST_F(TapeTest, a_gradient_given_to_a_leaf_is_in_the_memory_of_its_owner) {
  const Tensor own = tensor({-99, -99}), given = tensor({1, 2});
  const Var a(tensor({3, 4}), own);
  Tape tape(be_);
  tape.backward(tape.record("give", {a}, tensor({0}), [&](const Tensor&, Grads g) { g.give(0, given); }));
  EXPECT_EQ(values(own), (Values{1, 2}));
  EXPECT_TRUE(a.grad().same_memory(own));
  EXPECT_EQ(values(given), (Values{1, 2}));
}

TEST_F(TapeTest, a_kernel_adds_to_a_shared_gradient_without_harm_to_its_other_holder) {
  const Var a = leaf({1, 1}), b = leaf({1, 1});
  Tape tape(be_);
  const Var x = times(tape, a, 1), y = times(tape, b, 1);
  const Var extra = weighted_sum(tape, times(tape, x, 3), {100, 200});
  const Var loss = sum(tape, weighted_sum(tape, sum(tape, x, y), {1, 2}), extra);
  tape.backward(loss);
  EXPECT_EQ(values(a.grad()), (Values{301, 602}));
  EXPECT_EQ(values(b.grad()), (Values{1, 2}));
}

TEST_F(TapeTest, a_gradient_that_nobody_else_holds_is_written_in_place) {
  const Var x = leaf({1});
  Tape tape(be_);
  const Var y = times(tape, x, 1);
  const Var z = tape.record("in_place", {y}, tensor({1}), [&](const Tensor& dout, Grads g) {
    const Tensor own = be_.allocate(DType::f64, {1});
    EXPECT_TRUE(g.writable(own).same_memory(own));
    EXPECT_TRUE(g.reuse(own).same_memory(own));
    const Tensor holder = own;
    be_.fill(own, 5);
    EXPECT_FALSE(g.writable(own).same_memory(own));
    EXPECT_EQ(values(g.writable(own)), Values{5});
    EXPECT_FALSE(g.reuse(own).same_memory(own));
    g.give(0, dout);
  });
  tape.backward(z);
  EXPECT_EQ(values(x.grad()), Values{1});
}

TEST_F(TapeTest, an_inference_tape_records_nothing_and_keeps_nothing) {
  const Var x = leaf(Values(10000, 1));
  const std::size_t before = be_.memory_stats().bytes_in_use;
  Tape tape(be_, Tape::Mode::inference);
  {
    const Var y = times(tape, times(tape, x, 2), 3);
    EXPECT_EQ(values(y.value())[0], 6);
    EXPECT_FALSE(y.needs_grad());
    EXPECT_LT(be_.memory_stats().bytes_in_use, before + 2 * x.value().bytes());  // only the last output
  }
  EXPECT_TRUE(tape.op_names().empty());
  EXPECT_EQ(be_.memory_stats().bytes_in_use, before);
}

TEST_F(TapeTest, ops_on_constants_are_not_recorded) {
  Tape tape(be_);
  const Var y = times(tape, Var(tensor({1, 2})), 2);
  EXPECT_FALSE(y.needs_grad());
  EXPECT_TRUE(tape.op_names().empty());
}

TEST_F(TapeTest, micro_steps_accumulate_until_the_gradient_is_cleared) {
  const Var x = leaf({1, 1});
  auto micro_step = [&](double scale) {
    Tape tape(be_, Tape::Mode::training, scale);
    const Var y = times(tape, x, 4);
    tape.backward(tape.record("scaled_sum", {y}, tensor({12}), [&](const Tensor& dloss, Grads g) {
      g.give(0, tensor({to_value(be_, dloss), 2 * to_value(be_, dloss)}));
    }));
  };
  micro_step(0.5);
  EXPECT_EQ(values(x.grad()), (Values{2, 4}));
  micro_step(0.25);
  EXPECT_EQ(values(x.grad()), (Values{3, 6}));
  x.clear_grad();
  EXPECT_FALSE(x.grad().defined());
  micro_step(1);
  EXPECT_EQ(values(x.grad()), (Values{4, 8}));
}

TEST_F(TapeTest, outputs_that_nothing_used_arrive_as_zeros) {
  const Var x = leaf({1, 2});
  Tape tape(be_);
  const std::vector<Var> outs = tape.record("split", {x}, {tensor({1, 2}), tensor({1, 2, 3})},
                                            [&](std::vector<Tensor>& douts, Grads g) {
                                              EXPECT_EQ(values(douts[1]), (Values{0, 0, 0}));
                                              g.give(0, douts[0]);
                                            });
  tape.backward(weighted_sum(tape, outs[0], {5, 6}));
  EXPECT_EQ(values(x.grad()), (Values{5, 6}));
}

TEST_F(TapeTest, backward_begins_from_the_gradients_of_several_outputs) {
  const Var a = leaf({1, 2}), b = leaf({3, 4});
  Tape tape(be_);
  const Var x = times(tape, a, 2);
  const Var y = sum(tape, x, b), z = times(tape, y, 3), constant(tensor({5}));
  // x is an output and an input of y; y is there twice; an output that depends on no leaf is passed over.
  tape.backward({x, y, z, y, constant},
                {tensor({1, 10}), tensor({2, 20}), tensor({4, 40}), tensor({8, 80}), tensor({9})});
  const double dy = 2 + 8 + 3 * 4;
  EXPECT_EQ(values(b.grad()), (Values{dy, 10 * dy}));
  EXPECT_EQ(values(a.grad()), (Values{2 * (1 + dy), 20 * (1 + dy)}));
}

TEST_F(TapeTest, a_given_gradient_is_copied_unless_the_tape_alone_holds_it) {
  const auto add_to_it = [&](const Tensor& held) {
    const Var a = leaf({1}), b = leaf({1});
    Tape tape(be_);
    const Var x = times(tape, a, 1);
    const Var y = sum(tape, x, b);
    std::vector<Tensor> douts = {tensor({7}), held.defined() ? held : tensor({5})};
    const void* const address = douts[0].raw();
    const void* modified = nullptr;
    const Var z = tape.record("in_place", {y}, tensor({1}), [&](const Tensor& dout, Grads g) {
      modified = g.writable(dout).raw();
      g.give(0, dout);
    });
    tape.backward({z, y}, std::move(douts));
    EXPECT_EQ(values(a.grad()), Values{12});
    return modified == address;
  };
  EXPECT_TRUE(add_to_it({}));
  const Tensor held = tensor({5});
  add_to_it(held);
  EXPECT_EQ(values(held), Values{5});
}

TEST_F(TapeTest, given_gradients_have_the_shapes_of_the_outputs) {
  const Var a = leaf({1, 2});
  const auto backward = [&](std::vector<Tensor> douts) {
    Tape tape(be_);
    const Var y = times(tape, a, 2);
    tape.backward(std::vector<Var>(1, y), std::move(douts));
  };
  EXPECT_THROW(backward({tensor({1})}), InternalError);
  EXPECT_THROW(backward({to_tensor(be_, DType::f64, {1, 2}, {1, 1})}), InternalError);
  EXPECT_THROW(backward({}), InternalError);
  EXPECT_NO_THROW(backward({tensor({1, 1})}));
}

// 3·(2a + b) and 10a, as two outputs.
TEST_F(TapeTest, a_recomputed_function_has_the_gradients_of_its_ops) {
  for (const bool use_second : {false, true}) {
    const Var a = leaf({1, 2}, 0), b = leaf({3, 4}, 1);
    Tape tape(be_);
    const Var x = times(tape, a, 2);
    int calls = 0;
    const std::vector<Var> outs = tape.recompute([&, x, b](Tape& inner) {
      ++calls;
      return std::vector<Var>{times(inner, sum(inner, x, b), 3), times(inner, x, 5)};
    });
    EXPECT_EQ(calls, 1);
    EXPECT_EQ(values(outs[0].value()), (Values{15, 24}));
    EXPECT_EQ(tape.op_names(), (Names{"times", "recompute"}));
    Var loss = weighted_sum(tape, outs[0], {1, 10});
    if (use_second) loss = sum(tape, loss, weighted_sum(tape, outs[1], {100, 1000}));
    tape.backward(loss);
    EXPECT_EQ(calls, 2);
    EXPECT_EQ(values(b.grad()), (Values{3, 30}));
    EXPECT_EQ(values(a.grad()), use_second ? (Values{6 + 1000, 60 + 10000}) : (Values{6, 60}));
  }
}

TEST_F(TapeTest, a_recomputed_function_keeps_only_what_it_captures) {
  constexpr std::int64_t kSize = 100000;
  const Var a = leaf(Values(kSize, 1));
  const std::size_t tensor_bytes = a.value().bytes();
  Tape tape(be_);
  const auto function = [this, a](Tape& inner) {
    Var y = a;
    for (int i = 0; i < 9; ++i) {
      const Tensor kept = tensor(Values(kSize, 2));  // what an op saves for its backward
      y = inner.record("keeps", {y}, tensor(Values(kSize, 2)), [kept](const Tensor& dout, Grads g) {
        EXPECT_TRUE(kept.defined());
        g.give(0, dout);
      });
    }
    return std::vector<Var>{y};
  };
  const std::size_t before = be_.memory_stats().bytes_in_use;
  Var y = tape.recompute(function)[0];
  EXPECT_LT(be_.memory_stats().bytes_in_use, before + 2 * tensor_bytes);  // the output
  const Var loss = weighted_sum(tape, y, Values(kSize, 3));
  y = Var();
  tape.backward(loss);
  EXPECT_EQ(values(a.grad())[kSize - 1], 3);
  EXPECT_LT(be_.memory_stats().bytes_in_use, before + tensor_bytes / 2);
}

// As the embedding that is also the head, if both were recomputed or only one.
TEST_F(TapeTest, a_leaf_of_recomputed_functions_is_ready_once_after_all_of_them) {
  const Var a = leaf({1}, 7), b = leaf({1}, 8), unused = leaf({1}, 9);
  Tape tape(be_);
  Var x = times(tape, a, 2);
  for (int i = 0; i < 2; ++i) {
    x = tape.recompute([&, x](Tape& inner) {
      times(inner, unused, 1);  // reaches no output
      return std::vector<Var>{sum(inner, sum(inner, x, times(inner, a, 10)), times(inner, b, 5))};
    })[0];
  }
  std::vector<int> ready;
  tape.on_leaf_ready([&](int id) {
    ready.push_back(id);
    EXPECT_EQ(values((id == 7   ? a
                      : id == 8 ? b
                                : unused)
                         .grad()),
              (id == 7   ? Values{22}
               : id == 8 ? Values{10}
                         : Values{0}));
  });
  tape.backward(weighted_sum(tape, x, {1}));
  std::ranges::sort(ready);
  EXPECT_EQ(ready, (std::vector{7, 8, 9}));
}

TEST_F(TapeTest, a_watch_sees_the_ops_of_a_recomputed_function_once) {
  const Var a = leaf({1, 2}, 3);
  for (const Tape::Mode mode : {Tape::Mode::training, Tape::Mode::inference}) {
    Names seen;
    std::vector<int> leaves;
    Tape tape(be_, mode);
    tape.on_op([&](std::string_view op, std::span<const Var> inputs, std::span<const Var> outs) {
      seen.emplace_back(op);
      leaves.push_back(inputs[0].leaf_id());
      EXPECT_EQ(outs.size(), 1u);
    });
    const Var y =
        tape.recompute([&](Tape& inner) { return std::vector<Var>{times(inner, times(inner, a, 2), 3)}; })[0];
    EXPECT_EQ(y.needs_grad(), mode == Tape::Mode::training);
    if (mode == Tape::Mode::training) tape.backward(weighted_sum(tape, y, {1, 1}));
    ASSERT_EQ(seen.size(), mode == Tape::Mode::training ? 3u : 2u);
    EXPECT_EQ(Names(seen.begin(), seen.begin() + 2), (Names{"times", "times"}));
    EXPECT_EQ(std::vector(leaves.begin(), leaves.begin() + 2), (std::vector{3, -1}));
  }
}

TEST_F(TapeTest, a_function_of_constants_is_not_recomputed) {
  Tape tape(be_);
  const Var x(tensor({1, 2}));
  EXPECT_FALSE(
      tape.recompute([&](Tape& inner) { return std::vector<Var>{times(inner, x, 2)}; })[0].needs_grad());
  EXPECT_TRUE(tape.op_names().empty());
}

TEST_F(TapeTest, an_output_that_no_op_of_a_recomputed_function_has_computed_is_refused) {
  const Var a = leaf({1});
  Tape tape(be_);
  EXPECT_THROW(tape.recompute([&](Tape&) { return std::vector<Var>{a}; }), InternalError);
}

TEST_F(TapeTest, the_same_variable_twice_is_refused) {
  const Var x = leaf({1});
  Tape tape(be_);
  EXPECT_THROW(sum(tape, x, x), InternalError);
  const Var constant(tensor({1}));
  EXPECT_NO_THROW(sum(tape, constant, constant));
}

TEST_F(TapeTest, backward_wants_a_loss_of_one_element_that_depends_on_a_leaf) {
  Tape tape(be_);
  EXPECT_THROW(tape.backward(times(tape, leaf({1, 2}), 1)), InternalError);
  EXPECT_THROW(tape.backward(Var(tensor({1}))), InternalError);
}

}  // namespace
}  // namespace stagegpt::test
