// The content of a training step's trace, and the first divergence between two runs.
#include "common/logging/step_trace.h"

#include <gtest/gtest.h>

#include "common/autograd/ops/linear.h"
#include "common/backend/op_observer.h"
#include "common/train/forward_outputs.h"
#include "stage0_serial/cpu_backend.h"
#include "stage0_serial/naive_backend.h"
#include "tests/support/program.h"
#include "tests/support/small_training.h"
#include "tools/compare/divergence.h"

namespace stagegpt::test {
namespace {

namespace fs = std::filesystem;

struct TracedTraining : SmallTraining {
  explicit TracedTraining(std::unique_ptr<Backend> on, double dropout = 0,
                          Recompute recompute = Recompute::none)
      : SmallTraining(std::move(on), config(recompute), random_tokens(1000), dropout) {}

  static TrainerConfig config(Recompute recompute) {
    TrainerConfig config = small_config(4, 2);
    config.recompute = recompute;
    return config;
  }

  // Trains for some steps, and writes a trace of each step to `directory`.
  const fs::path& trace(int steps) {
    for (int i = 0; i < steps; ++i) {
      ForwardOutputs outputs(grid, *backend, model);
      report = trainer.step(outputs.watch());
      write_trace(directory.path() / trace_name(trainer.steps_done()), model.parameters().table(),
                  {outputs.collect(), report.loss, values(model.parameters().grads()),
                   values(model.parameters().weights())});
    }
    return directory.path();
  }
  TraceFile file(std::int64_t step) const { return TraceFile(directory.path() / trace_name(step)); }

  // Of an arena.
  ParameterValues values(const Tensor& arena) const {
    return arena_values(*backend, model.parameters().table(), arena);
  }

  const Grid grid{communicator};
  ScratchDirectory directory;
  StepReport report;
};

TEST(StepTrace, HoldsWhatAStepComputesInOrder) {
  TracedTraining run(make_cpu_backend(1), 0.1);
  run.trace(1);
  const std::vector<std::string> begin = {
      "the output of wte (embedding)",
      "the output of dropout, after wte",
      "the output of h.0.ln_1 (layernorm)",
      "the output of h.0.attn.c_attn (linear)",
      "the output of attention, after h.0.attn.c_attn",
      "the output of h.0.attn.c_proj (linear)",
      "the output of dropout, after h.0.attn.c_proj",
      "the residual stream before h.0.ln_2",
      "the output of h.0.ln_2 (residual_layernorm)",
      "the output of h.0.mlp.c_fc (linear)",
      "the output of h.0.mlp.c_proj (activation_linear)",
  };
  const TraceFile file = run.file(1);
  const std::vector<std::string>& names = file.names();
  ASSERT_GT(names.size(), begin.size());
  EXPECT_EQ(std::vector(names.begin(), names.begin() + std::ssize(begin)), begin);
  const auto loss = std::ranges::find(names, "the loss");
  EXPECT_EQ(*(loss - 1), "the output of wte (linear)");
  EXPECT_EQ(*(loss + 1), "the gradient of ln_f.bias");
  EXPECT_EQ(names.back(), "the weight ln_f.bias");
  EXPECT_EQ(names.end() - loss, 1 + 2 * std::ssize(run.model.parameters().table().rows()));
}

TEST(StepTrace, HoldsTheNumbersOfTheStep) {
  TracedTraining run(make_cpu_backend(1));
  run.trace(1);
  const TraceFile file = run.file(1);
  EXPECT_EQ(file.values("the loss"), std::vector{static_cast<float>(run.report.loss)});
  EXPECT_EQ(file.shape("the output of wte (embedding)"), (std::vector<std::int64_t>{4, kSmallT, 48}));
  EXPECT_EQ(file.shape("the output of wte (linear)"),
            (std::vector<std::int64_t>{4, kSmallT, kSmallVocabulary}));
  const Parameters& parameters = run.model.parameters();
  for (const Parameter& row : parameters.table().rows()) {
    const std::vector<std::int64_t> shape(row.shape.dims().begin(), row.shape.dims().end());
    EXPECT_EQ(file.shape("the weight " + row.name), shape);
    const auto elements = [&](const Tensor& arena) {
      return to_host<float>(*run.backend, arena.slice(row.offset, row.shape));
    };
    EXPECT_EQ(file.values("the weight " + row.name), elements(parameters.weights()));
    EXPECT_EQ(file.values("the gradient of " + row.name), elements(parameters.grads()));
  }
}

TEST(StepTrace, TellsThatItIsBeingWritten) {
  TracedTraining run(make_cpu_backend(1));
  run.trainer.step();
  const Parameters& parameters = run.model.parameters();
  std::size_t beats = 0;
  write_trace(run.directory.path() / trace_name(1), parameters.table(),
              {{}, 4, run.values(parameters.grads()), run.values(parameters.weights())}, [&] { ++beats; });
  EXPECT_EQ(beats, 2 * parameters.table().size()) << "once for each gradient and each weight";
}

TEST(StepTrace, ChangesNoBit) {
  TracedTraining traced(make_cpu_backend(1), 0.1), untraced(make_cpu_backend(1), 0.1);
  traced.trace(3);
  for (int i = 0; i < 3; ++i) untraced.trainer.step();
  EXPECT_EQ(traced.weights(), untraced.weights());
}

TEST(StepTrace, IsTheSameWithRecomputation) {
  TracedTraining whole(make_cpu_backend(1), 0.1);
  whole.trace(2);
  for (const Recompute recompute : {Recompute::gelu, Recompute::block}) {
    TracedTraining run(make_cpu_backend(1), 0.1, recompute);
    run.trace(2);
    for (const std::int64_t step : {1, 2}) {
      EXPECT_EQ(read_bytes(run.directory.path() / trace_name(step)) ==
                    read_bytes(whole.directory.path() / trace_name(step)),
                true)
          << name_of(recompute) << " step " << step;
    }
  }
}

TEST(StepTrace, OfLaterStepsAreRemoved) {
  TracedTraining run(make_cpu_backend(1));
  run.trace(3);
  run.directory.write("step_00000004.txt", "not a trace");
  remove_traces_behind(run.directory.path(), 2);
  const auto left = traces_in(run.directory.path());
  EXPECT_EQ(left.size(), 2u);
  EXPECT_FALSE(left.contains(3));
  EXPECT_TRUE(fs::exists(run.directory.path() / "step_00000004.txt"));
}

// The biases of every layer's c_fc in `arena`, which is the weights or the gradients.
std::vector<Tensor> c_fc_biases(const TracedTraining& run, const Tensor& arena) {
  std::vector<Tensor> biases;
  for (const Parameter& row : run.model.parameters().table().rows()) {
    if (row.name.ends_with("mlp.c_fc.bias")) biases.push_back(arena.slice(row.offset, row.shape));
  }
  return biases;
}

// Makes the forward of c_fc ignore its bias: the op reads zeros.
class WithoutBiasForward final : public OpObserver {
 public:
  explicit WithoutBiasForward(const TracedTraining& run)
      : OpObserver(*run.backend), biases_(c_fc_biases(run, run.model.parameters().weights())) {}

 private:
  void around(const OpCall& op, const std::function<void()>& kernel) override {
    if (!op.is<LinearActivationForward>()) return kernel();
    std::vector<Tensor> saved;
    for (const Tensor& bias : biases_) {
      saved.push_back(backend().allocate(bias.dtype(), bias.shape()));
      backend().copy(saved.back(), bias);
      backend().fill(bias, 0);
    }
    kernel();
    for (std::size_t i = 0; i < biases_.size(); ++i) backend().copy(biases_[i], saved[i]);
  }

  std::vector<Tensor> biases_;
};

// Makes the backward of c_fc ignore its bias: the bias's gradient is zero.
class WithoutBiasBackward final : public OpObserver {
 public:
  explicit WithoutBiasBackward(const TracedTraining& run)
      : OpObserver(*run.backend), gradients_(c_fc_biases(run, run.model.parameters().grads())) {}

 private:
  void around(const OpCall& op, const std::function<void()>& kernel) override {
    kernel();
    if (!op.is<LinearBackward>()) return;
    for (const Tensor& gradient : gradients_) backend().fill(gradient, 0);
  }

  std::vector<Tensor> gradients_;
};

std::optional<Divergence> divergence_of(TracedTraining& run) {
  constexpr int kSteps = 3;
  TracedTraining reference(make_cpu_backend(1), 0.1);
  return first_divergence(reference.trace(kSteps), run.trace(kSteps));
}

TEST(Divergence, IsNoneBetweenBackends) {
  TracedTraining run(make_naive_backend(), 0.1);
  const auto found = divergence_of(run);
  EXPECT_FALSE(found) << found->text();
}

// Biases are zero in step 1, so the error is visible from step 2 on.
TEST(Divergence, NamesAForwardThatIgnoresABias) {
  TracedTraining run(make_naive_backend(), 0.1);
  WithoutBiasForward fault(run);
  const auto found = divergence_of(run);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->step, 2);
  EXPECT_EQ(found->tensor, "the output of h.0.mlp.c_fc (linear)");
  EXPECT_GT(found->error, found->limit);
}

TEST(Divergence, NamesABackwardThatIgnoresABias) {
  TracedTraining run(make_naive_backend(), 0.1);
  WithoutBiasBackward fault(run);
  const auto found = divergence_of(run);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->step, 1);
  EXPECT_EQ(found->tensor, "the gradient of h.1.mlp.c_fc.bias");
  EXPECT_EQ(found->error, 1);
}

}  // namespace
}  // namespace stagegpt::test
