// Stage 3's programs on the emulator, as a user runs them, compared with stages 0 and 2.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "common/base/error.h"
#include "tests/support/mpi_program.h"
#include "tests/support/patterns.h"
#include "tests/support/trained_runs.h"

namespace stagegpt::test {
namespace {

class Stage3Emulated : public TrainedRuns {
 protected:
  ProgramResult run(int ranks, const std::string& job, const Arguments& arguments,
                    const RunOptions& options = {}) const {
    return run_mpi(ranks_of(ranks, "stage3_" + job + "_emulated") + arguments, directory_.path(), options);
  }
  ProgramResult stage3(int ranks, const std::string& job, const Arguments& arguments) const {
    return expect_done(run(ranks, job, arguments));
  }
  static void expect_refusal(const ProgramResult& result, const std::string& message) {
    expect_told_once(result, 2, message);
  }
};

TEST_F(Stage3Emulated, TrainsAsStage0OnAnyNumberOfRanks) {
  const Arguments shorter =
      with_flags(kFewSequences, words("--steps 4 --eval-every 2 --grad-accumulation 2"));
  stage0("train", small("serial", shorter));
  for (const int ranks : {1, 4}) {  // two ranks train in most of these tests
    const std::string run = "ranks" + std::to_string(ranks);
    stage3(ranks, "train", small(run, shorter));
    expect_same_curves(run, "serial");
  }
}

TEST_F(Stage3Emulated, TensorRanksAndStagesTrainAsStage0) {
  const Arguments shorter =
      words("--steps 3 --eval-every 3 --n-layer 2 --batch-size 4 --grad-accumulation 2");
  stage0("train", small("serial", shorter));
  stage3(2, "train", small("divided", with_flags(shorter, {"--tensor-parallel", "2"})));
  expect_same_curves("divided", "serial");
  stage3(2, "train", small("stages", with_flags(shorter, {"--pipeline-parallel", "2"})));
  expect_same_curves("stages", "serial");
  expect_refusal(run(2, "train", small("graph", {"--tensor-parallel", "2", "--gpu-graph", "on"})),
                 "--gpu-graph: on is not possible, because the ranks of a divided model");
}

TEST_F(Stage3Emulated, TrainsSomeParametersAsStage0) {
  const Arguments flags = with_flags(kFewSequences, words("--freeze wte*,*.mlp.* --grad-clip 0.1 --steps 4"));
  stage0("train", small("serial", flags));
  stage3(2, "train", small("divided", with_flags(flags, {"--comm", "zero1"})));
  expect_same_curves("divided", "serial");
}

// Late streams delay their work until the host waits for it. If the program did not wait for a copy or a sum,
// the curves would differ.
TEST_F(Stage3Emulated, EverySyncTrainsAsStage0) {
  const RunOptions late = {.environment = {{"STAGEGPT_EMULATOR_STREAMS", "late"}}};
  const Arguments serial = with_flags(kFewSequences, {"--steps", "3", "--eval-every", "3"});
  const Arguments shorter = with_flags(serial, {"--comm-algorithm", "mpi"});
  stage0("train", small("serial", serial));
  for (const char* comm : {"per-tensor", "flat", "bucketed", "overlapped", "zero1", "zero1-overlapped"}) {
    expect_done(run(2, "train", small(comm, with_flags(shorter, {"--comm", comm})), late));
    expect_same_curves(comm, "serial");
  }
}

TEST_F(Stage3Emulated, ReproducibleRunsEndInTheSameBitsAsStage2) {
  // In bf16 the sums are in f32 too. There attention is that of compute capability 9.0.
  const std::map<std::string, std::vector<int>> ranks_in = {{"f32", {1, 4}}, {"bf16", {2}}};
  for (const auto& [precision, all_ranks] : ranks_in) {
    // Reproducible sums are of 8 parts of a step.
    const Arguments few = {"--stop-after", "2",           "--reproducible", "--batch-size",
                           "16",           "--precision", precision};
    const RunOptions device = {
        .environment = {{"STAGEGPT_EMULATOR_CAPABILITY", precision == "bf16" ? "9.0" : "8.0"}}};
    const std::string single = "single_" + precision;
    expect_done(run_program("stage2_train_emulated", small(single, few), directory_.path(), device));
    for (const int ranks : all_ranks) {
      const std::string divided = concat("ranks", ranks, precision);
      expect_done(run(ranks, "train", small(divided, few), device));
      EXPECT_EQ(hash_after(2, divided), hash_after(2, single)) << ranks << " ranks, " << precision;
      EXPECT_EQ(metric(divided, "loss"), metric(single, "loss"));
    }
  }
}

// The last micro-step sends gradients, and is no graph.
TEST_F(Stage3Emulated, OtherMicroStepsMayBeGraphs) {
  const Arguments few = with_flags(kFourSteps, {"--grad-accumulation", "3"});
  expect_said(stage3(2, "train", small("default", few)), "; with CUDA graphs\n");
  stage3(2, "train", small("off", with_flags(few, {"--gpu-graph", "off"})));
  EXPECT_EQ(hash_after(4, "default"), hash_after(4, "off"));
  EXPECT_EQ(metric("default", "loss"), metric("off", "loss"));
  expect_refusal(run(2, "train", small("refused", {"--gpu-graph", "on"})),
                 "--gpu-graph: on is not possible, because the last micro-step");
  EXPECT_FALSE(std::filesystem::exists(directory_.path() / "refused"));
}

// With zero1, each rank updates only a part of the weights, but reads the shadow (bf16 copy) of all weights.
TEST_F(Stage3Emulated, DividedMomentsInBf16TrainAsWholeOnes) {
  const Arguments few = with_flags(kFewSequences, words("--steps 3 --eval-every 3 --precision bf16"));
  for (const char* comm : {"flat", "zero1"})
    stage3(2, "train", small(comm, with_flags(few, {"--comm", comm})));
  expect_same_curves("zero1", "flat");
}

// Each rank measures the parameters that it updates, and its tokens. Ranks add up in another order, which
// costs some roundings of f32 (2⁻²⁴ each; measured: 1.3e-7 at most). In bf16 such a difference may round an
// activation the other way: the largest one is then off by 2⁻⁷ of itself.
TEST_F(Stage3Emulated, LayersOfDividedMomentsAreThoseOfStage2AndWatchingChangesNoBit) {
  for (const std::string precision : {"f32", "bf16"}) {
    const Arguments steps = with_flags(kFourSteps, {"--precision", precision});
    const Arguments watched = with_flags(steps, {"--watch-layers", "2"}), zero1 = {"--comm", "zero1"};
    const std::string whole = "whole_" + precision, divided = "divided_" + precision,
                      plain = "plain_" + precision;
    expect_done(run_program("stage2_train_emulated", small(whole, watched), directory_.path()));
    stage3(2, "train", small(divided, with_flags(watched, zero1)));
    stage3(2, "train", small(plain, with_flags(steps, zero1)));
    expect_same_layers(divided, whole, precision == "f32" ? 1e-5 : 0x1p-7);
    EXPECT_EQ(hash_after(4, divided), hash_after(4, plain)) << precision;
    EXPECT_EQ(metric(divided, "loss"), metric(plain, "loss")) << precision;
  }
}

TEST_F(Stage3Emulated, ARunGoesOnAtOtherStagesAndNumbersOfRanks) {
  const Arguments flags = with_flags(kFewSequences, {"--steps", "12", "--eval-every", "4"});
  stage0("train", small("serial", flags));
  stage3(3, "train", small("moved", with_flags(flags, {"--stop-after", "4"})));
  stage3(2, "train", {"--resume", "moved", "--stop-after", "8"});
  stage0("train", {"--resume", "moved", "--stop-after", "12"});
  expect_same_curves("moved", "serial");
}

TEST_F(Stage3Emulated, WritesAsStage0) {
  stage0("train", small("run"));
  const Arguments text = words("--model run --prompt the --max-new-tokens 20 --num-samples 2 --stop a");
  EXPECT_EQ(stage3(2, "generate", text).output, stage0("generate", text).output);
}

TEST_F(Stage3Emulated, TellsOnWhatItRuns) {
  const auto machine = [&](const Arguments& more, const RunOptions& options = {}) {
    const Arguments flags = small("run", {"--threads", "1", "--comm", "flat"}) + more;
    const std::string errors = expect_done(run(2, "train", flags + Arguments{"--dry-run"}, options)).errors;
    const std::size_t at = errors.find("machine: ");
    return errors.substr(at, errors.find('\n', at) - at);
  };
  const std::string expected =
      "machine: 2 ranks on 1 node, each on [0-9]+ of [0-9]+ cores?, which 2 ranks share; emulated GPU on 1 "
      "thread; f32, host BLAS \\(f32\\) in place of cuBLASLt; gradients flat, transport host";
  const std::string no_graphs =
      "; no CUDA graphs of training steps, because the only micro-step sends gradients";
  const std::string own = machine({}),
                    shared = machine({"--share-gpu"}, {.environment = {{"STAGEGPT_EMULATOR_DEVICES", "1"}}});
  EXPECT_TRUE(matches(own, expected + no_graphs)) << own;
  EXPECT_TRUE(matches(shared, expected + ", sharing GPUs" + no_graphs)) << shared;
}

TEST_F(Stage3Emulated, OpenMpsVariableIsTheNumberOfThreadsOfEachRank) {
  Arguments flags = small("run") + Arguments{"--dry-run"};
  const auto threads = std::ranges::find(flags, "--threads");
  flags.erase(threads, threads + 2);
  expect_said(run(2, "train", flags, {.environment = {{"OMP_NUM_THREADS", "3"}}}),
              "emulated GPU on 3 threads");
}

// The limits are those of the precision. TF32 and bf16 round the factors of products, so the errors are
// larger too.
TEST_F(Stage3Emulated, VerifiesInEveryPrecision) {
  const std::string golden = STAGEGPT_SOURCE_DIR "/tests/golden/tiny";
  struct Case {
    const char* precision;
    double limit, least_error;
  };
  for (const auto& [precision, limit, least_error] :
       {Case{"f32", 1e-4, 0}, {"tf32", 1e-2, 1e-4}, {"bf16", 8e-2, 1e-3}}) {
    const ProgramResult result = stage3(2, "verify",
                                        {"--model", golden + ".bin", "--state", golden + "_debug_state.bin",
                                         "--precision", precision, "--json"});
    const auto json = nlohmann::json::parse(result.output);
    EXPECT_TRUE(json["passed"].get<bool>()) << precision;
    EXPECT_GT(json["logits_error"], least_error) << precision;
    for (const auto& tensor : json["tensors"]) EXPECT_EQ(tensor["limit"], limit) << precision;
  }
}

TEST_F(Stage3Emulated, BenchTellsRanksAndCommunication) {
  const auto bench = [&](const Arguments& more) {
    const Arguments small = words(
        "--n-layer 2 --n-embd 16 --n-head 2 --seq-len 16 --batch-size 2 --steps 1 --warmup 1 --threads 1 "
        "--json");
    return nlohmann::json::parse(stage3(2, "bench", small + more).output);
  };
  const auto json = bench({});
  EXPECT_EQ(json["ranks"], 2);
  EXPECT_GT(json["phases_ms"]["communication"], 0);
  const double loss = json["first_step"]["loss"];
  for (const char* grid : {"--tensor-parallel", "--pipeline-parallel"})
    EXPECT_NEAR(bench({grid, "2"})["first_step"]["loss"], loss, 1e-5 * loss) << grid;
}

TEST_F(Stage3Emulated, RanksShareAGpuOnlyIfTheyMay) {
  const RunOptions one_gpu = {.environment = {{"STAGEGPT_EMULATOR_DEVICES", "1"}}};
  expect_refusal(run(2, "train", small("run"), one_gpu), "ranks 0 and 1 use the same GPU");
  const ProgramResult shared = run(2, "train", small("run", kFourSteps) + Arguments{"--share-gpu"}, one_gpu);
  expect_said(expect_done(shared), "transport host, sharing GPUs");
  // Also if there are enough GPUs, but --device selects the same GPU for all ranks.
  expect_refusal(run(2, "train", small("other", {"--device", "1"})), "ranks 0 and 1 use the same GPU");
}

TEST_F(Stage3Emulated, RefusesTransportsThatItHasNot) {
  for (const char* transport : {"nccl", "cuda-aware"}) {
    expect_refusal(
        run(2, "train", small("run", {"--transport", transport})),
        "--transport: " + std::string(transport) + ": emulated GPUs support only the host transport");
  }
}

}  // namespace
}  // namespace stagegpt::test
