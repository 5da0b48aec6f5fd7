// Training on the stages of a pipeline, compared bit by bit with the same ranks of one stage.
#include <gtest/gtest.h>

#include "tests/mpi/small_run.h"
#include "tests/support/tolerance.h"

namespace stagegpt::test {
namespace {

constexpr int kPipelineSteps = 2;

SmallRun pipeline_run(const SmallSettings& settings) {
  return SmallRun(settings, CommAlgorithm::ring, sync_named("zero1"));
}

std::vector<float> row_of(SmallRun& run, const std::string& name) {
  const ParameterTable& table = run.model.parameters().table();
  const Parameter& row = table[static_cast<std::size_t>(table.find(name))];
  return run.elements(run.model.parameters().weights().slice(row.offset, row.arena_shape()));
}

// Losses and weights of a run on a grid have the bits of the same run on the ranks of one stage.
void expect_bits_of_one_stage(SmallSettings settings) {
  SmallRun many = pipeline_run(settings);
  settings.ranks = ranks().size() / settings.stages;
  settings.stages = 1;
  SmallRun one = pipeline_run(settings);
  for (int step = 0; step < kPipelineSteps; ++step) {
    const StepReport expected = one.trainer.step(), report = many.trainer.step();
    EXPECT_EQ(report.loss, expected.loss);
    // Its squares are added in other groups.
    EXPECT_NEAR(report.grad_norm, expected.grad_norm, 1e-6 * expected.grad_norm);
  }
  one.trainer.gather_weights();
  many.trainer.gather_weights();
  for (const Parameter& row : many.model.parameters().table().rows())
    EXPECT_EQ(row_of(many, row.name) == row_of(one, row.name), true) << row.name;
}

// The head is a matrix of its own: the sum of a tied one's gradients has another order. Nothing is clipped.
SmallSettings untied(int stages) {
  return {.accumulation = 3,
          .dropout = 0.2,
          .n_head = 12,
          .stages = stages,
          .n_layer = 3,
          .tied = false,
          .grad_clip = 0};
}

class PipelineTraining : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (ranks().size() % GetParam() != 0) GTEST_SKIP() << "these ranks do not divide into such stages";
  }
};

// With four ranks and two stages, a stage has two data ranks.
TEST_P(PipelineTraining, has_the_bits_of_one_stage) { expect_bits_of_one_stage(untied(GetParam())); }

TEST_P(PipelineTraining, has_them_with_fewer_micro_steps_than_stages) {
  SmallSettings settings = untied(GetParam());
  settings.accumulation = 1;
  expect_bits_of_one_stage(settings);
}

TEST_P(PipelineTraining, has_them_with_recomputed_blocks_in_bf16) {
  SmallSettings settings = untied(GetParam());
  settings.recompute = Recompute::block;
  settings.activations = DType::bf16;
  expect_bits_of_one_stage(settings);
}

TEST_P(PipelineTraining, has_them_with_tensor_ranks) {
  SmallSettings settings = untied(GetParam());
  settings.tensor_ranks = ranks().size() / settings.stages;
  if (settings.tensor_ranks == 1) GTEST_SKIP() << "one rank in a stage";
  expect_bits_of_one_stage(settings);
}

// The first stage and the last have the same embedding, to the bit, and its gradient is that of both.
TEST_P(PipelineTraining, has_one_embedding_on_two_stages) {
  for (const DType activations : {DType::f32, DType::bf16}) {
    SmallSettings settings = untied(GetParam());
    settings.tied = true;
    settings.activations = activations;
    SmallRun many = pipeline_run(settings);
    settings.ranks = ranks().size() / settings.stages;
    settings.stages = 1;
    SmallRun one = pipeline_run(settings);
    EXPECT_EQ(many.trainer.step().loss, one.trainer.step().loss);
    EXPECT_NEAR(many.trainer.step().loss, one.trainer.step().loss,
                activations == DType::f32 ? kDividedTrainingLimit : 0x1p-9);
    const Communicator& stages = many.grid.pipeline();
    const bool has_wte = stages.rank() == 0 || stages.rank() + 1 == stages.size();
    const auto bits = [&](const Tensor& arena) {
      const std::int64_t size = many.model.config().padded_vocab_size() * many.model.config().n_embd;
      std::vector<std::byte> wte(static_cast<std::size_t>(size) * size_of(arena.dtype()));
      if (has_wte) {
        const ParameterTable& table = many.model.parameters().table();
        const std::int64_t offset = table[static_cast<std::size_t>(table.find("wte.weight"))].offset;
        many.backend->copy_to_host(wte, arena.slice(offset, {size}));
      }
      return wte;
    };
    const Parameters& parameters = many.model.parameters();
    const auto expect_one = [&](const Tensor& arena) {
      const std::vector<std::byte> own = bits(arena);
      std::vector<std::byte> firsts = own;
      stages.group().broadcast(firsts, 0);
      EXPECT_EQ(!has_wte || own == firsts, true);
    };
    if (parameters.shadow().defined()) expect_one(parameters.shadow());
    many.trainer.gather_weights();
    expect_one(parameters.weights());
  }
}

// The copy on the last stage has no moments. With flat, every data rank of a stage has the same ones.
TEST_P(PipelineTraining, has_moments_of_one_embedding) {
  for (const std::string sync : {"flat", "zero1-overlapped"}) {
    for (const bool with_tensor_ranks : {false, true}) {
      SmallSettings settings = untied(GetParam());
      settings.tied = true;
      if (with_tensor_ranks) settings.tensor_ranks = ranks().size() / settings.stages;
      const SmallRun run(settings, CommAlgorithm::ring, sync_named(sync));
      const Parameters& parameters = run.model.parameters();
      const std::int64_t data_ranks = run.grid.data().size(),
                         copies = sync == "flat" || data_ranks == 1 ? data_ranks : 1;
      std::int64_t owned = 0;  // by all data ranks of this stage and tensor rank
      for (const std::int64_t size :
           gather(run.grid.data().group(), total_size(run.trainer.optimizer().owned())))
        owned += size;
      const int wte = parameters.table().find("wte.weight");
      const bool has_copy = wte >= 0 && run.grid.pipeline().rank() > 0;
      const std::int64_t copied =
          has_copy ? parameters.table()[static_cast<std::size_t>(wte)].arena_shape().numel() : 0;
      EXPECT_EQ(owned, copies * (parameters.weights().numel() - copied)) << sync;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Of, PipelineTraining, testing::Values(2, 3),
                         [](const auto& test) { return concat(test.param, "_stages"); });

}  // namespace
}  // namespace stagegpt::test
