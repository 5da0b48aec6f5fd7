// --precision bf16: stage 2's programs on the emulator, compared with f32 and with repeated bf16 runs.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/trained_runs.h"

namespace stagegpt::test {
namespace {

const Arguments kBf16 = {"--precision", "bf16"};
const RunOptions kOn90 = {.environment = {{"STAGEGPT_EMULATOR_CAPABILITY", "9.0"}}};

class Bf16Training : public TrainedRuns {
 protected:
  ProgramResult run(const std::string& job, const Arguments& arguments,
                    const RunOptions& options = {}) const {
    return run_program("stage2_" + job + "_emulated", with_flags(kBf16, arguments), directory_.path(),
                       options);
  }
  ProgramResult done(const std::string& job, const Arguments& arguments,
                     const RunOptions& options = {}) const {
    return expect_done(run(job, arguments, options));
  }
  void expect_refusal(const std::string& job, const Arguments& arguments, const char* message,
                      const RunOptions& options = {}) const {
    expect_failure(run(job, arguments, options), 2, message);
  }
};

// Stage 0's losses are the reference. A number in bf16 is off by up to 2⁻⁸ of itself. The loss is a mean over
// many, so that it is off by less; measured: 2.2e-4 of itself at most.
TEST_F(Bf16Training, LossTracksThatOfF32) {
  const Arguments steps = with_flags(kFewSequences, {"--steps", "10", "--dropout", "0"});
  stage0("train", small("f32", steps));
  done("train", small("bf16", steps));
  const std::vector<double> got = metric("bf16", "loss");
  const double largest = largest_loss_difference("bf16", "f32");
  EXPECT_GT(largest, 1e-5);  // that of f32 is below
  EXPECT_LT(largest, 0x1p-9);
  EXPECT_LT(got.back(), 0.9 * got.front());
  // Stage 0 in bf16 rounds the same tensors, after sums in another order.
  stage0("train", with_flags(kBf16, small("cpu", steps)));
  EXPECT_LE(largest_loss_difference("cpu", "bf16"), 0x1p-9);
}

// Attention of compute capability 9.0, over two tiles of keys. `flash` chooses it: it ends in the same bits
// as flash-wgmma and in others than flash-mma. Measured: 1.7e-3 of stage 0's loss at most. The products of
// our own add in another order than the library's, and the same bits come out of graphs and of single
// launches.
TEST_F(Bf16Training, TrainsWithWgmmaAsStage0) {
  const Arguments steps = words(
      "--n-embd 128 --block-size 80 --batch-size 1 --steps 24 --dropout 0 --eval-every 24 --max-new-tokens 2 "
      "--learning-rate 2e-4");
  stage0("train", small("f32", steps));
  done("train", small("chosen", steps), kOn90);
  for (const char* attention : {"flash-wgmma", "flash-mma"}) {
    done("train", small(attention, with_flags(steps, {"--stop-after", "4", "--gpu-attention", attention})),
         kOn90);
  }
  const std::vector<double> expected = metric("f32", "loss"), got = metric("chosen", "loss");
  ASSERT_EQ(got.size(), 24u);
  EXPECT_LE(largest_loss_difference("chosen", "f32"), 0x1p-8);
  EXPECT_LT(got.back(), 0.6 * got.front());
  const std::vector<double> first(got.begin(), got.begin() + 4);
  EXPECT_EQ(metric("flash-wgmma", "loss"), first);
  EXPECT_NE(metric("flash-mma", "loss"), first);
  for (const char* graph : {"on", "off"}) {
    done(
        "train",
        small(graph, with_flags(steps, {"--stop-after", "4", "--gpu-matmul", "wgmma", "--gpu-graph", graph})),
        kOn90);
  }
  const std::vector<double> own = metric("on", "loss");
  ASSERT_EQ(own.size(), 4u);
  for (std::size_t i = 0; i < own.size(); ++i) EXPECT_NEAR(own[i] / expected[i], 1, 0x1p-8) << i;
  EXPECT_NE(own, first);
  EXPECT_EQ(hash_after(4, "on"), hash_after(4, "off"));
}

// The limit is 4u. u = 2⁻⁸ is the largest relative error of one rounding to bf16; from the embedding to a
// block's output an element passes a few roundings, so that the largest one may be off by some u. Norms are
// off by less, because errors of either sign add up to little. Measured: 1.7u for the largest element, 0.8u
// at most for norms.
TEST_F(Bf16Training, LayersHaveTheNumbersOfF32AndWatchingChangesNoBit) {
  const Arguments steps = kFourSteps, watched = with_flags(steps, {"--watch-layers", "2"});
  stage0("train", small("f32", watched));
  done("train", small("bf16", watched));
  done("train", small("not_watched", steps));
  expect_same_layers("bf16", "f32", 4 * 0x1p-8);
  EXPECT_EQ(hash_after(4, "bf16"), hash_after(4, "not_watched"));
  EXPECT_EQ(metric("bf16", "loss"), metric("not_watched", "loss"));
}

TEST_F(Bf16Training, EndsInTheSameBitsAgainAndWhenResumed) {
  const Arguments steps = {"--stop-after", "6"}, first = with_flags(kFourSteps, steps);
  done("train", small("once", first));
  done("train", small("again", first));
  EXPECT_EQ(hash_after(6, "again"), hash_after(6, "once"));
  done("train", small("resumed", kFourSteps));
  done("train", Arguments{"--resume", "resumed"} + steps);
  EXPECT_EQ(hash_after(6, "resumed"), hash_after(6, "once"));
}

// At each character of this text the logits of the first two differ by more than bf16 rounds.
TEST_F(Bf16Training, GeneratesAsStage0) {
  stage0("train", small("run"));
  const Arguments text = words("--model run --prompt the --max-new-tokens 14 --temperature 0");
  const std::string expected = stage0("generate", text).output;
  EXPECT_EQ(done("generate", text).output, expected);
  EXPECT_EQ(done("generate", with_flags(text, {"--weights", "bf16"})).output, expected);
}

TEST_F(Bf16Training, BenchReports) {
  const auto json = nlohmann::json::parse(
      done("bench", words("--n-layer 1 --n-embd 32 --batch-size 2 --seq-len 16 --steps 2 --warmup 1 --json"))
          .output);
  EXPECT_GT(json["gemm_bound_ms"], 0);
  const auto& kernels = json["kernels"];
  const auto has = [&](const char* name) {
    return std::ranges::any_of(kernels, [&](const auto& kernel) { return kernel["name"] == name; });
  };
  EXPECT_TRUE(has("adamw"));
  EXPECT_FALSE(has("cast")) << "AdamW writes the weights in bf16";
}

// The numbers of docs/hopper.md. By counters alone, the versions of the ladder rank as their author says:
// larger tiles (v5, v9) read less, and results that are written in whole sectors (v7) touch fewer of them.
TEST_F(Bf16Training, CountersRankTheLadderOfProducts) {
#ifdef STAGEGPT_PROFILE
  done("bench", {"--ladder", "matmul", "--emulator-report", "report"}, kOn90);
  const std::string table = read_bytes(directory_.path() / "report" / "report.txt");
  struct Row {
    double launches = 0, least = 0, asked = 0, sectors = 0;
  };
  const auto row = [&](const std::string& kernel) {
    constexpr std::size_t kName = 58;  // characters
    const std::size_t at = table.find(kernel.substr(0, kName));
    EXPECT_NE(at, std::string::npos) << kernel << table;
    std::istringstream numbers(at == std::string::npos ? "" : table.substr(at + kName));
    Row found;
    numbers >> found.launches >> found.least >> found.asked >> found.sectors;
    return found;
  };
  const auto with_mma = [&](const char* sizes) { return row(concat("matmul_mma_kernel<MmaSizes<", sizes)); };
  const auto with_ring = [&](const char* sizes) {
    return row(concat("matmul_ring_kernel<WgmmaSizes<", sizes));
  };
  const Row v4 = with_mma("64, 64, 32, 32, 1"), v5 = with_mma("128, 128, 64, 32, 1"),
            v6 = with_mma("128, 128, 64, 32, 2"), v7 = row("matmul_wgmma_kernel"),
            v8 = with_ring("2, 128, 6, false"), v9 = with_ring("2, 256, 4, true");
  EXPECT_EQ(v4.sectors, 3960);
  EXPECT_EQ(v5.sectors, 3168);
  EXPECT_EQ(v6.sectors, 3168);
  EXPECT_EQ(v7.sectors, 1980);
  EXPECT_EQ(v8.sectors, 1980);
  // One tile of (72,48) · (48,192): each operand once, but of the bias 8 bytes for each four results.
  constexpr double kOperands = 2 * (72 * 48 + 48 * 192 + 72 * 192), kBias = 2 * 192, kBiasRead = 2 * 72 * 192;
  EXPECT_EQ(v9.launches, 1);
  EXPECT_NEAR(v9.least, (kOperands + kBias) / 1e3, 0.05);
  EXPECT_NEAR(v9.asked, (kOperands + kBiasRead) / 1e3, 0.05);
  EXPECT_EQ(v9.sectors, (kOperands + kBiasRead / 8) / 32);  // eight rows read the same
#endif
}

TEST_F(Bf16Training, RefusesWhatComputesInF32Alone) {
  expect_refusal("train", small("run", {"--gpu-matmul", "tiled"}),
                 "--precision: bf16 needs --gpu-matmul cublaslt or wgmma, got \"tiled\"");
  expect_refusal("train", small("run", {"--gpu-attention", "materialised"}),
                 "--precision: bf16 needs --gpu-attention flash");
  expect_refusal("train", small("run", {"--n-head", "1", "--n-embd", "129"}),
                 "--precision: bf16 needs heads of at most 128 channels");
}

TEST_F(Bf16Training, RefusesWhatTheDeviceHasNot) {
  const RunOptions on_75 = {.environment = {{"STAGEGPT_EMULATOR_CAPABILITY", "7.5"}}};
  for (const char* precision : {"bf16", "tf32"}) {
    expect_refusal("train", small("run", {"--precision", precision}),
                   "needs compute capability 8.0, emulated GPU has 7.5; use f32", on_75);
  }
  done("train", small("run", {"--precision", "f32", "--steps", "1"}), on_75);
}

TEST_F(Bf16Training, RefusesProductsThatTheDeviceOrThePrecisionHasNot) {
  expect_refusal("train", small("run", {"--gpu-matmul", "wgmma"}),
                 "--gpu-matmul: wgmma needs a GPU of compute capability 9.0, this one has 8.0");
  for (const char* precision : {"f32", "tf32"}) {
    expect_refusal("train", small("run", {"--gpu-matmul", "wgmma", "--precision", precision}),
                   "--gpu-matmul: wgmma needs --precision bf16", kOn90);
  }
}

TEST_F(Bf16Training, RefusesAttentionThatTheDeviceOrTheModelHasNot) {
  expect_refusal("train", small("run", {"--gpu-attention", "flash-wgmma"}),
                 "--gpu-attention: flash-wgmma needs a GPU of compute capability 9.0, this one has 8.0");
  expect_refusal("train", small("run", {"--gpu-attention", "flash-wgmma", "--precision", "f32"}),
                 "--gpu-attention: flash-wgmma needs --precision bf16, got \"f32\"");
  expect_refusal("train", small("run", words("--gpu-attention flash-wgmma --n-head 2 --n-embd 24")),
                 "--gpu-attention: flash-wgmma needs heads of a multiple of 8 channels", kOn90);
}

}  // namespace
}  // namespace stagegpt::test
