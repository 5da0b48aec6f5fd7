// Flags of stage0_verify, against PyTorch's steps; flags of stage0_bench, against counts of operations and
// bytes.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/program.h"

namespace stagegpt::test {
namespace {

using Arguments = std::vector<std::string>;
const std::string kGolden = STAGEGPT_SOURCE_DIR "/tests/golden/";

// PyTorch's losses under settings of which none is the program's default.
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
      run_program("stage0_bench", Arguments{"--json", "--threads", "1"} + arguments, ".");
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  return nlohmann::json::parse(result.output);
}

// Of a model of L layers with C channels: vocabulary, positions, blocks, last layernorm.
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
  const Arguments model = {"--model",      "nano", "--n-layer",    "3",   "--n-head", "4", "--n-embd", "32",
                           "--block-size", "24",   "--vocab-size", "300", "--steps",  "1", "--warmup", "0"};
  const nlohmann::json json =
      bench(model + Arguments{"--batch-size", "5", "--grad-accumulation", "2", "--seq-len", "20",
                              "--activation", "relu", "--dropout", "0.1"});
  EXPECT_EQ(json["parameters"], parameters_of(300, 24, 3, 32));
  EXPECT_EQ(json["ms_per_step"]["min"], json["ms_per_step"]["max"]);  // of one step
  // Two micro-steps of 5 sequences of 20 tokens: each token meets 4C² + 4C² weights in a block that have no
  // activation behind them, and the head, whose rows are padded to 384.
  const double tokens = 2 * 5 * 20, C = 32;
  const Kernel linear = kernel(json, "linear_forward");
  EXPECT_EQ(linear.calls, 2 * (3 * 3 + 1));
  EXPECT_NEAR(linear.operations, 2 * tokens * (3 * 8 * C * C + 384 * C), 0.02 * linear.operations);
  const Kernel fused = kernel(json, "linear_activation_forward");
  EXPECT_EQ(fused.calls, 2 * 3);
  EXPECT_NEAR(fused.operations, tokens * 3 * (2 * 4 * C * C + 4 * C * (1 + 1)),
              1e-3 * fused.operations);  // relu
  EXPECT_EQ(kernel(json, "dropout_forward").calls, 2 * (1 + 2 * 3));

  const nlohmann::json plain = bench(model + Arguments{"--batch-size", "8", "--no-fused", "--reproducible"});
  EXPECT_EQ(kernel(plain, "linear_activation_forward").calls, 0);
  EXPECT_EQ(kernel(plain, "activation_forward").calls, 8 * 3);  // eight sub-batches
  EXPECT_EQ(kernel(plain, "dropout_forward").calls, 0);
}

// The number of tokens before shows in the bytes that a token reads: keys and values of all of them.
TEST(BenchFlags, ReachTheWritingThatIsTimed) {
  const Arguments model = {"--generate", "--n-layer",    "3",  "--n-head",     "4",   "--n-embd",
                           "32",         "--block-size", "24", "--vocab-size", "300", "--warmup",
                           "7",          "--steps",      "5"};
  const double context = 7 + 3, C = 32, L = 3;  // the tokens 8 to 12, on average
  const double matrices = 384 * C + L * 12 * C * C, others = C + L * 13 * C + 2 * C;
  EXPECT_EQ(bench(model)["bytes_per_token"], 4 * (matrices + others) + 2 * 4 * C * L * context);
  EXPECT_EQ(bench(model + Arguments{"--weights", "bf16"})["bytes_per_token"],
            2 * matrices + 4 * others + 2 * 4 * C * L * context);
}

}  // namespace
}  // namespace stagegpt::test
