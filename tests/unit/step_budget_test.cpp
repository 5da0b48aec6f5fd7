// The counted work of a step against formulas, and how --budget prints it.
#include "tools/bench/step_budget.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <nlohmann/json.hpp>

namespace stagegpt::test {
namespace {

constexpr std::int64_t kLength = 16;
constexpr double kChannels = 32, kBlocks = 3, kPaddedVocabulary = 384, kHeads = 4;

Gpt2Config small_model() {
  Gpt2Config config;
  config.vocab_size = 300;
  config.block_size = 24;
  config.n_layer = 3;
  config.n_head = 4;
  config.n_embd = 32;
  config.activation = Activation::relu;
  return config;
}

std::vector<OpBudget> budget(std::int64_t batch_size, std::int64_t micro_steps,
                             DType activations = DType::f32, bool fused = true,
                             Recompute recompute = Recompute::none) {
  TrainerConfig trainer;
  trainer.recompute = recompute;
  trainer.batch_size = batch_size;
  trainer.grad_accumulation = micro_steps;
  return step_budget(small_model(), trainer, kLength, activations, fused);
}

// The work of ops with this part of a name, and the number of their calls.
OpBudget sum_of(const std::vector<OpBudget>& ops, std::string_view part) {
  OpBudget sum{std::string(part)};
  for (const OpBudget& op : ops) {
    if (op.name.find(part) == std::string::npos) continue;
    sum.calls += op.calls;
    sum.work.flops += op.work.flops;
    sum.work.bytes += op.work.bytes;
  }
  return sum;
}

TEST(StepBudget, counts_six_operations_for_each_weight_and_token) {
  const double tokens = 2.0 * 5 * kLength;
  const OpBudget linear = sum_of(budget(5, 2), "linear");
  // Per layer and token: 3C + C + 4C + C biases, which are added once and whose gradients are summed once; 4C
  // activations and their derivatives.
  const double weights = kBlocks * 12 * kChannels * kChannels + kPaddedVocabulary * kChannels,
               others = kBlocks * (2 * 9 + 2 * 4) * kChannels;
  EXPECT_EQ(linear.work.flops, tokens * (6 * weights + others));
  EXPECT_EQ(linear.calls, 2 * 2 * (4 * kBlocks + 1));
}

TEST(StepBudget, counts_two_bytes_of_an_activation_in_bf16) {
  const double activations = kBlocks * 5 * kLength * 4 * kChannels,
               statistics = kBlocks * 5 * kHeads * kLength * 4;
  EXPECT_EQ(sum_of(budget(5, 1), "attention_forward").work.bytes, 4 * activations + statistics);
  EXPECT_EQ(sum_of(budget(5, 1, DType::bf16), "attention_forward").work.bytes, 2 * activations + statistics);
}

TEST(StepBudget, is_of_one_update) {
  const std::vector<OpBudget> ops = budget(2, 3);
  EXPECT_EQ(sum_of(ops, "adamw").calls, 1);
  EXPECT_EQ(sum_of(ops, "attention_forward").calls, 3 * kBlocks);
  EXPECT_EQ(sum_of(ops, "add").calls, 0);
  // AdamW also writes the weights in bf16: no other pass over them.
  EXPECT_EQ(sum_of(budget(2, 3, DType::bf16), "cast").calls, 0);
  EXPECT_EQ(sum_of(budget(2, 3, DType::bf16), "adamw").work.bytes, sum_of(ops, "adamw").work.bytes / 28 * 30);
  EXPECT_EQ(sum_of(budget(2, 1, DType::f32, /*fused=*/false), "add").calls, 2 * kBlocks);
}

// A budget is of what is executed: the ops of a block are there twice in the forward, and once in the
// backward.
TEST(StepBudget, counts_what_is_recomputed) {
  const auto calls = [](Recompute recompute, std::string_view op, DType activations = DType::f32) {
    return sum_of(budget(2, 3, activations, true, recompute), op).calls;
  };
  constexpr std::int64_t kMicroSteps = 3, kL = 3;
  for (const char* op : {"attention_forward", "linear_activation_forward"}) {
    EXPECT_EQ(calls(Recompute::none, op), kMicroSteps * kL) << op;
    EXPECT_EQ(calls(Recompute::gelu, op), kMicroSteps * kL) << op;
    EXPECT_EQ(calls(Recompute::block, op), 2 * kMicroSteps * kL) << op;
  }
  for (const char* op : {"attention_backward", "activation_linear_backward", "embedding_forward"})
    EXPECT_EQ(calls(Recompute::block, op), calls(Recompute::none, op)) << op;
  // The head is not in a block.
  EXPECT_EQ(calls(Recompute::none, "linear_forward"), kMicroSteps * (3 * kL + 1));
  EXPECT_EQ(calls(Recompute::block, "linear_forward"), kMicroSteps * (2 * 3 * kL + 1));
  // In bf16, the fused op of the MLP runs again; in f32, the activation alone.
  EXPECT_EQ(calls(Recompute::gelu, "linear_activation_forward", DType::bf16), 2 * kMicroSteps * kL);
  const auto activations = [](const std::vector<OpBudget>& ops) {
    const auto op = std::ranges::find(ops, "activation_forward", &OpBudget::name);
    return op == ops.end() ? 0 : op->calls;
  };
  EXPECT_EQ(activations(budget(2, 3)), 0);
  EXPECT_EQ(activations(budget(2, 3, DType::f32, true, Recompute::gelu)), kMicroSteps * kL);
}

TEST(StepBudget, bounds_an_op_by_the_slower_of_its_two_parts) {
  const PeakRates peak{.flops_per_second = 1e3, .bytes_per_second = 1e2};
  EXPECT_EQ((OpBudget{"op", 1, {2e3, 1e2}}.bound_seconds(peak)), 2);
  EXPECT_EQ((OpBudget{"op", 1, {2e3, 3e2}}.bound_seconds(peak)), 3);
}

const std::vector<OpBudget> kMadeOps = {{"products", 7, {4e12, 1e9}}, {"copies", 2, {0, 6e9}}};

BudgetSubject subject(bool with_peak) {
  BudgetSubject subject{.model = "nano", .batch_size = 4, .seq_len = 128, .tokens = 512, .peak = {}};
  if (with_peak) subject.peak = {2e15, 3e12};
  return subject;
}

TEST(BudgetReport, adds_up_the_bounds) {
  const Json json = budget_json(subject(true), kMadeOps);
  EXPECT_EQ(json["ops"][0]["bound_ms"], 2);
  EXPECT_EQ(json["ops"][1]["bound_ms"], 2);
  EXPECT_EQ(json["bound_ms"], 4);
  EXPECT_EQ(json["gflop"], 4000);
  EXPECT_EQ(json["gbytes"], 7);
  EXPECT_TRUE(budget_json(subject(false), kMadeOps)["bound_ms"].is_null());
}

std::string printed(bool with_peak) {
  testing::internal::CaptureStdout();
  print_budget_table(subject(with_peak), kMadeOps);
  std::fflush(stdout);
  return testing::internal::GetCapturedStdout();
}

TEST(BudgetReport, is_a_table) {
  EXPECT_EQ(printed(true), R"(nano, 512 tokens a step in sequences of 128; counted, not measured

op                             calls        GFLOP           GB   bound, ms
products                           7     4000.000        1.000      2.0000
copies                             2        0.000        6.000      2.0000
all                                      4000.000        7.000      4.0000

at most 128,000 tokens/s at 2000.0 TFLOP/s and 3000.0 GB/s
)");
  EXPECT_EQ(printed(false), R"(nano, 512 tokens a step in sequences of 128; counted, not measured

op                             calls        GFLOP           GB
products                           7     4000.000        1.000
copies                             2        0.000        6.000
all                                      4000.000        7.000
)");
}

}  // namespace
}  // namespace stagegpt::test
