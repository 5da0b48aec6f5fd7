// Flags of stage0_verify, compared with PyTorch's steps; flags of stage0_bench, compared with counts of
// operations and bytes.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/program.h"

namespace stagegpt::test {
namespace {

using Arguments = std::vector<std::string>;
const std::string kGolden = STAGEGPT_SOURCE_DIR "/tests/golden/";

// PyTorch's losses with settings that all differ from the program's defaults.
TEST(VerifyFlags, ReachTheOptimizer) {
  const nlohmann::json golden = nlohmann::json::parse(std::ifstream(kGolden + "tiny.json"));
  for (const std::size_t number : {0, 2}) {
    const nlohmann::json& run = golden["runs"][number];
    Arguments arguments = {
        "--model", kGolden + "tiny.bin", "--state", kGolden + "tiny_debug_state.bin", "--steps", "10",
        "--json",  "--threads",          "1"};
    for (const char* flag :
         {"--learning-rate", "--beta1", "--beta2", "--eps", "--weight-decay", "--grad-clip"}) {
      std::string key = std::string(flag).substr(2);
      std::ranges::replace(key, '-', '_');
      arguments = arguments + Arguments{flag, run[key].dump()};
    }
    const ProgramResult result = run_program("stage0_verify", arguments, ".");
    ASSERT_EQ(result.exit_code, 0) << result.errors;
    const auto losses = nlohmann::json::parse(result.output)["losses"].get<std::vector<double>>();
    const auto expected = run["losses"].get<std::vector<double>>();
    ASSERT_EQ(losses.size(), 10u);
    for (std::size_t i = 0; i < 10; ++i) EXPECT_NEAR(losses[i], expected[i], 2e-6 * expected[i]) << i;
  }
}

nlohmann::json bench(const Arguments& arguments) {
  const ProgramResult result =
      expect_done(run_program("stage0_bench", Arguments{"--json", "--threads", "1"} + arguments, "."));
  return nlohmann::json::parse(result.output);
}

// The number of parameters of a model with L layers and C channels: vocabulary, positions, blocks, last
// layernorm.
double parameters_of(double V, double block, double L, double C) {
  return (V + block) * C + L * (12 * C * C + 13 * C) + 2 * C;
}

struct Kernel {
  double calls = 0, operations = 0;
};

Kernel kernel(const nlohmann::json& json, const std::string& name) {
  for (const nlohmann::json& one : json["kernels"]) {
    if (one["name"] == name)
      return {one["calls"].get<double>(), one["gflops"].get<double>() * one["ms"].get<double>() * 1e6};
  }
  return {};
}

TEST(BenchFlags, ReachTheStepThatIsTimed) {
  const Arguments model = words(
      "--model nano --n-layer 3 --n-head 4 --n-embd 32 --block-size 24 --vocab-size 300 --steps 1 --warmup "
      "0");
  const nlohmann::json json = bench(
      model + words("--batch-size 5 --grad-accumulation 2 --seq-len 20 --activation relu --dropout 0.1"));
  EXPECT_EQ(json["parameters"], parameters_of(300, 24, 3, 32));
  EXPECT_EQ(json["ms_per_step"]["min"], json["ms_per_step"]["max"]);  // only one step was timed
  // Two micro-steps of 5 sequences of 20 tokens. In each block, 4C² + 4C² weights belong to linear layers
  // without an activation. The head's rows are padded to 384.
  const double tokens = 2 * 5 * 20, C = 32;
  const Kernel linear = kernel(json, "linear_forward");
  EXPECT_EQ(linear.calls, 2 * (3 * 3 + 1));
  EXPECT_NEAR(linear.operations, 2 * tokens * (3 * 8 * C * C + 384 * C), 0.02 * linear.operations);
  const Kernel fused = kernel(json, "linear_activation_forward");
  EXPECT_EQ(fused.calls, 2 * 3);
  EXPECT_NEAR(fused.operations, tokens * 3 * (2 * 4 * C * C + 4 * C * (1 + 1)),
              1e-3 * fused.operations);  // 1 for the bias, 1 for relu
  EXPECT_EQ(kernel(json, "dropout_forward").calls, 2 * (1 + 2 * 3));

  const nlohmann::json plain = bench(model + Arguments{"--batch-size", "8", "--no-fused", "--reproducible"});
  EXPECT_EQ(kernel(plain, "linear_activation_forward").calls, 0);
  EXPECT_EQ(kernel(plain, "activation_forward").calls, 8 * 3);  // a step has eight sub-batches
  EXPECT_EQ(kernel(json, "activation_linear_backward").calls, 2 * 3);
  EXPECT_EQ(kernel(plain, "activation_linear_backward").calls, 0);
  EXPECT_EQ(kernel(plain, "activation_backward").calls, 8 * 3);
  EXPECT_EQ(kernel(plain, "dropout_forward").calls, 0);

  const nlohmann::json again = bench(model + Arguments{"--recompute", "block"}), whole = bench(model);
  EXPECT_EQ(kernel(again, "attention_forward").calls, 2 * kernel(whole, "attention_forward").calls);
  EXPECT_EQ(kernel(again, "attention_backward").calls, kernel(whole, "attention_backward").calls);
  EXPECT_EQ(again["first_step"], whole["first_step"]);
  EXPECT_LT(again["peak_memory_bytes"], whole["peak_memory_bytes"]);
  EXPECT_EQ(again["recompute"], "block");
}

// The tokens and the weights are random, but always the same.
TEST(BenchFlags, FirstStepIsAlwaysTheSame) {
  const nlohmann::json step =
      bench(words("--n-layer 2 --n-head 4 --n-embd 32 --block-size 24 --vocab-size 300 --batch-size 4 "
                  "--seq-len 20 --steps 1 --warmup 0"))["first_step"];
  EXPECT_NEAR(step["loss"].get<double>(), 5.825263, 1e-4);  // ln 300 = 5.704
  EXPECT_NEAR(step["grad_norm"].get<double>(), 1.885661, 1e-3);
}

// What --budget counts is what a step does; each bound follows from the rates.
TEST(BenchFlags, ReachTheBudget) {
  const Arguments model = words("--n-layer 3 --batch-size 5 --seq-len 20 --warmup 0 --steps 3");
  const Arguments rates = words("--budget --peak-tflops 0.25 --peak-bandwidth 8");
  const nlohmann::json counted = bench(model + rates), timed = bench(model);
  for (const auto& op : counted["ops"]) {
    const double flops = 1e9 * op["gflop"].get<double>(), bytes = 1e9 * op["gbytes"].get<double>();
    EXPECT_NEAR(op["bound_ms"], 1e3 * std::max(flops / 0.25e12, bytes / 8e9), 1e-9) << op;
    EXPECT_EQ(op["calls"], kernel(timed, op["name"]).calls) << op;
  }
  EXPECT_EQ(counted["ops"].size(), timed["kernels"].size());
  EXPECT_TRUE(bench(model + Arguments{"--budget"})["bound_ms"].is_null());
}

TEST(BenchFlags, OfTheBudgetBelongTogether) {
  const auto refused = [](const Arguments& flags) {
    const ProgramResult result = run_program("stage0_bench", flags, ".");
    EXPECT_EQ(result.exit_code, 2) << result.errors;
    return result.errors;
  };
  EXPECT_NE(refused({"--peak-tflops", "1"}).find("--peak-tflops: is for --budget"), std::string::npos);
  EXPECT_NE(refused({"--peak-bandwidth", "1"}).find("--peak-bandwidth: is for --budget"), std::string::npos);
  EXPECT_NE(refused({"--budget", "--peak-tflops", "1"}).find("belong together"), std::string::npos);
  EXPECT_NE(refused({"--recompute", "gelu", "--generate"}).find("--recompute: cannot be combined with"),
            std::string::npos);
  EXPECT_NE(refused({"--budget", "--generate"}).find("cannot be combined with --generate"),
            std::string::npos);
}

// The bytes per token include the keys and values of all earlier tokens.
TEST(BenchFlags, ReachTheWritingThatIsTimed) {
  const Arguments model = words(
      "--generate --n-layer 3 --n-head 4 --n-embd 32 --block-size 24 --vocab-size 300 --warmup 7 --steps 5");
  const double context = 7 + 3, C = 32, L = 3;  // the average context of tokens 8 to 12
  const double matrices = 384 * C + L * 12 * C * C, others = C + L * 13 * C + 2 * C;
  EXPECT_EQ(bench(model)["bytes_per_token"], 4 * (matrices + others) + 2 * 4 * C * L * context);
  EXPECT_EQ(bench(model + Arguments{"--weights", "bf16"})["bytes_per_token"],
            2 * matrices + 4 * others + 2 * 4 * C * L * context);
}

}  // namespace
}  // namespace stagegpt::test
