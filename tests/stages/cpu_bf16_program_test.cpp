// --precision bf16 at stage 0: compared with f32 and with repeated bf16 runs. Stage 2's tests of the same are
// in bf16_program_test.cpp, which also compares the two stages.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/support/trained_runs.h"

namespace stagegpt::test {
namespace {

const Arguments kBf16 = {"--precision", "bf16"};

class CpuBf16 : public TrainedRuns {
 protected:
  ProgramResult bf16(const std::string& job, const Arguments& arguments) const {
    return stage0(job, with_flags(kBf16, arguments));
  }
};

// The limits are those of stage 2's test, which explains them.
TEST_F(CpuBf16, LossTracksThatOfF32) {
  const Arguments steps = {"--steps", "50", "--dropout", "0"};
  stage0("train", small("f32", steps));
  bf16("train", small("bf16", steps));
  const std::vector<double> got = metric("bf16", "loss");
  const double largest = largest_loss_difference("bf16", "f32");
  EXPECT_GT(largest, 1e-5);  // activations in f32 would be below
  EXPECT_LT(largest, 0x1p-9);
  EXPECT_LT(got.back(), 0.9 * got.front());
}

TEST_F(CpuBf16, EndsInTheSameBitsAgainWithOtherThreadsAndWhenResumed) {
  const Arguments first = {"--stop-after", "12", "--grad-accumulation", "2"};
  bf16("train", small("once", first));
  bf16("train", small("threads", with_flags(first, {"--threads", "3"})));
  bf16("train", small("recomputed", with_flags(first, {"--recompute", "gelu"})));
  for (const char* run : {"threads", "recomputed"})
    EXPECT_EQ(hash_after(12, run), hash_after(12, "once")) << run;
  bf16("train", small("resumed", with_flags(first, {"--stop-after", "7"})));
  bf16("train", {"--resume", "resumed", "--stop-after", "12"});
  EXPECT_EQ(hash_after(12, "resumed"), hash_after(12, "once"));
}

// A checkpoint contains the f32 weights, so a run can be resumed in any precision.
TEST_F(CpuBf16, GoesOnInF32AndBack) {
  bf16("train", small("run", {"--stop-after", "10"}));
  stage0("train", words("--resume run --precision f32 --stop-after 12"));
  stage0("train", words("--resume run --precision tf32 --stop-after 13"));  // as f32
  bf16("train", {"--resume", "run", "--stop-after", "14"});
  EXPECT_EQ(metric("run", "loss").size(), 14u);
}

TEST_F(CpuBf16, VerifiesTheGoldenModel) {
  const std::string golden = STAGEGPT_SOURCE_DIR "/tests/golden/tiny";
  const auto json =
      nlohmann::json::parse(bf16("verify", {"--model", golden + ".bin", "--state",
                                            golden + "_debug_state.bin", "--steps", "2", "--json"})
                                .output);
  EXPECT_TRUE(json["passed"].get<bool>());
  EXPECT_GT(json["logits_error"], 1e-3);
  for (const auto& tensor : json["tensors"]) EXPECT_EQ(tensor["limit"], 8e-2);
}

TEST_F(CpuBf16, GeneratesAndEvaluatesAsF32) {
  stage0("train", small("run"));
  const Arguments text = words("--model run --prompt the --max-new-tokens 14 --temperature 0");
  const std::string expected = stage0("generate", text).output;
  EXPECT_EQ(bf16("generate", text).output, expected);
  const Arguments file = words("--model run --data t.txt --json");
  const auto loss = [](const ProgramResult& result) {
    return nlohmann::json::parse(result.output)["loss"].get<double>();
  };
  const double f32 = loss(stage0("evaluate", file)), half = loss(bf16("evaluate", file));
  EXPECT_NEAR(half, f32, 2e-2);
  EXPECT_NE(half, f32);
}

// Each weight has 4 bytes in f32, and 2 more in the shadow (its bf16 copy). The largest activations have 2
// bytes per element instead of 4.
TEST_F(CpuBf16, PlansItsMemory) {
  const auto plan = [&](const char* precision) {
    return nlohmann::json::parse(
        stage0("train", small("run", {"--dry-run", "--json", "--precision", precision}))
            .output)["memory_bytes"];
  };
  const auto f32 = plan("f32"), half = plan("bf16");
  EXPECT_EQ(half["weights"].get<double>(), 1.5 * f32["weights"].get<double>());
  EXPECT_EQ(half["gradients"], f32["gradients"]);
  EXPECT_EQ(half["moments"], f32["moments"]);
  EXPECT_LT(half["activations"].get<double>(), 0.65 * f32["activations"].get<double>());
}

TEST_F(CpuBf16, BenchReports) {
  const Arguments size =
      words("--n-layer 1 --n-embd 32 --batch-size 2 --seq-len 16 --steps 2 --warmup 1 --json");
  const auto json = nlohmann::json::parse(bf16("bench", size).output);
  EXPECT_GT(json["gemm_bound_ms"], 0);
  const auto has = [&](const char* name) {
    return std::ranges::any_of(json["kernels"], [&](const auto& kernel) { return kernel["name"] == name; });
  };
  EXPECT_TRUE(has("adamw"));
  EXPECT_FALSE(has("cast")) << "AdamW writes the weights in bf16";
}

}  // namespace
}  // namespace stagegpt::test
