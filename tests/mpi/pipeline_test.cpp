// The schedule 1F1B, on every communicator: the order of forwards and backwards, and the bits of one stage.
#include "common/parallel/pipeline.h"

#include <gtest/gtest.h>

#include "common/autograd/ops/linear.h"
#include "tests/support/communicators.h"
#include "tests/support/tensors.h"

namespace stagegpt::test {
namespace {

constexpr std::int64_t kRows = 3, kChannels = 5;

class Passes final : public PassWork {
 public:
  std::function<Var(Tape& tape, std::int64_t pass, Var before)> on_forward;
  std::function<void(Tape& tape, std::int64_t pass, Var out, Tensor dout)> on_backward;

 private:
  Var forward(Tape& tape, std::int64_t pass, Var before) override {
    return on_forward(tape, pass, std::move(before));
  }
  void backward(Tape& tape, std::int64_t pass, Var out, Tensor dout) override {
    on_backward(tape, pass, std::move(out), std::move(dout));
  }
};

// Stage s multiplies by a matrix of its own.
class PipelineOf : public testing::TestWithParam<CommunicatorUnderTest> {
 protected:
  Tensor values(std::uint32_t stream, std::int64_t rows = kRows) {
    return to_tensor(be_, DType::f32, {rows, kChannels}, random_values(1, stream, rows * kChannels));
  }
  Tensor input(std::int64_t i) { return values(static_cast<std::uint32_t>(100 + i)); }
  Tensor gradient(std::int64_t i) { return values(static_cast<std::uint32_t>(200 + i)); }
  Var matrix(int stage) {
    const Tensor value = values(static_cast<std::uint32_t>(stage), kChannels);
    return {value, be_.zeros(DType::f32, value.shape()), stage};
  }

  const std::unique_ptr<Backend> backend_ = GetParam().make_backend();
  Backend& be_ = *backend_;
  const std::unique_ptr<Communicator> communicator_ = GetParam().make(be_);
  const int stages_ = communicator_->size(), stage_ = communicator_->rank();
};

std::vector<std::string> one_forward_one_backward(int stages, int stage, int micro_batches) {
  std::vector<std::string> order;
  const int before = std::min(stages - 1 - stage, micro_batches);
  for (int i = 0; i < before; ++i) order.push_back(concat("F", i));
  for (int i = before; i < micro_batches; ++i) {
    order.push_back(concat("F", i));
    order.push_back(concat("B", i - before));
  }
  for (int i = micro_batches - before; i < micro_batches; ++i) order.push_back(concat("B", i));
  return order;
}

TEST_P(PipelineOf, has_the_order_of_1f1b_and_the_bits_of_one_stage) {
  Pipeline pipeline(be_, *communicator_, {kRows, kChannels}, DType::f32);
  for (const int micro_batches : {1, 2, 5}) {
    const Var own = matrix(stage_);
    std::vector<std::string> order;
    std::vector<Values> outputs;
    Passes passes;
    passes.on_forward = [&](Tape& tape, std::int64_t i, Var before) {
      order.push_back(concat("F", i));
      Var out = linear(tape, stage_ == 0 ? Var(input(i)) : std::move(before), own, Var());
      outputs.push_back(to_values(be_, out.value()));
      return out;
    };
    passes.on_backward = [&](Tape& tape, std::int64_t i, Var out, Tensor dout) {
      order.push_back(concat("B", i));
      EXPECT_EQ(dout.defined(), stage_ + 1 < stages_);
      tape.backward({std::move(out)}, {dout.defined() ? dout : gradient(i)});
    };
    pipeline.run(micro_batches, 1, passes);
    EXPECT_EQ(order, one_forward_one_backward(stages_, stage_, micro_batches));

    std::vector<Var> matrices;
    for (int stage = 0; stage < stages_; ++stage) matrices.push_back(matrix(stage));
    for (int i = 0; i < micro_batches; ++i) {
      Tape tape(be_);
      Var x(input(i));
      for (int stage = 0; stage < stages_; ++stage) {
        x = linear(tape, x, matrices[static_cast<std::size_t>(stage)], Var());
        if (stage != stage_) continue;
        EXPECT_EQ(outputs[static_cast<std::size_t>(i)], to_values(be_, x.value()));
      }
      tape.backward({x}, {gradient(i)});
    }
    EXPECT_EQ(to_values(be_, own.grad()), to_values(be_, matrices[static_cast<std::size_t>(stage_)].grad()));
  }
}

TEST_P(PipelineOf, keeps_of_a_micro_batch_only_what_its_backward_needs) {
  const Var own = matrix(stage_);
  const auto bytes_in_use = [&] { return be_.memory_stats().bytes_in_use; };
  const std::size_t without = bytes_in_use();
  const std::size_t stream = [&] {
    const Tensor one = be_.allocate(DType::f32, {kRows, kChannels});
    return bytes_in_use() - without;
  }();
  Pipeline pipeline(be_, *communicator_, {kRows, kChannels}, DType::f32);
  Passes passes;
  passes.on_forward = [&](Tape& tape, std::int64_t i, Var before) {
    return linear(tape, stage_ == 0 ? Var(input(i)) : std::move(before), own, Var());
  };
  passes.on_backward = [&](Tape& tape, std::int64_t i, Var out, Tensor dout) {
    // The input of each micro-batch in flight; the gradient of the oldest one's output, or the output.
    const auto streams = static_cast<std::size_t>(std::min<std::int64_t>(stages_ - i, stages_ - stage_) + 1);
    EXPECT_EQ(bytes_in_use() - without, streams * stream) << "backward " << i;
    tape.backward({std::move(out)}, {dout.defined() ? std::move(dout) : gradient(i)});
  };
  pipeline.run(stages_, 1, passes);
}

INSTANTIATE_TEST_SUITE_P(By, PipelineOf, testing::ValuesIn(communicators_under_test()),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace stagegpt::test
