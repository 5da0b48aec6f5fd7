// Stage 2's programs on the emulator, compared with stage 0's.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/base/error.h"
#include "tests/support/trained_runs.h"

namespace stagegpt::test {
namespace {

constexpr const char* kTiny = STAGEGPT_SOURCE_DIR "/tests/golden/tiny.bin";
constexpr const char* kTinyState = STAGEGPT_SOURCE_DIR "/tests/golden/tiny_debug_state.bin";

const RunOptions kDirect = {.environment = {{"STAGEGPT_ALLOCATOR", "direct"}}};

class Stage2Emulated : public TrainedRuns {
 protected:
  ProgramResult run(const std::string& job, const Arguments& arguments,
                    const RunOptions& options = {}) const {
    return run_program("stage2_" + job + "_emulated", arguments, directory_.path(), options);
  }
  ProgramResult stage2(const std::string& job, const Arguments& arguments) const {
    return expect_done(run(job, arguments));
  }
};

TEST_F(Stage2Emulated, TrainsAsStage0) {
  const Arguments flags =
      with_flags(kFewSequences, words("--grad-accumulation 2 --steps 6 --warmup-steps 1 --eval-every 3"));
  stage0("train", small("serial", flags));
  stage2("train", small("emulated", flags));
  expect_same_curves("emulated", "serial");
}

TEST_F(Stage2Emulated, TrainsSomeParametersAsStage0) {
  const Arguments flags =
      with_flags(kFewSequences, words("--freeze wte*,*.mlp.* --grad-clip 0.1 --steps 4 --trace-steps 2"));
  stage0("train", small("serial", flags));
  stage2("train", small("emulated", flags));
  expect_same_curves("emulated", "serial");
  expect_same_traces("emulated", "serial", 2);
}

TEST_F(Stage2Emulated, ComputesEveryTensorAsStage0) {
  const Arguments traced = with_flags(kFewSequences, words("--trace-steps 3 --stop-after 3 --n-layer 2"));
  stage0("train", small("serial", traced));
  stage2("train", small("emulated", traced));
  expect_same_traces("emulated", "serial", 3);
}

TEST_F(Stage2Emulated, ARunGoesOnAtAnotherStage) {
  const Arguments flags = with_flags(kFewSequences, {"--steps", "12", "--eval-every", "4"});
  stage0("train", small("serial", flags));
  stage2("train", small("moved", with_flags(flags, {"--stop-after", "4"})));
  stage0("train", {"--resume", "moved", "--stop-after", "8"});
  stage2("train", {"--resume", "moved", "--stop-after", "12"});
  expect_same_curves("moved", "serial");
}

// Of ops whose kernels move each operand once, the distinct bytes are those of the formula: LayerNorm of
// N = 2·32 rows of C = 64 reads x and writes out, N·C floats each, w and bias, C floats each, and writes
// mean and rstd, N floats each.
TEST_F(Stage2Emulated, CountsTheBytesOfAStep) {
#ifdef STAGEGPT_PROFILE
  stage2("bench", words("--n-layer 1 --n-embd 64 --n-head 2 --block-size 32 --vocab-size 256 --batch-size 2 "
                        "--emulator-report report"));
  const auto report = nlohmann::json::parse(read_bytes(directory_.path() / "report" / "report.json"));
  const auto op = std::ranges::find_if(
      report["ops"], [](const auto& entry) { return entry["name"] == "layernorm_forward"; });
  ASSERT_NE(op, report["ops"].end());
  constexpr int N = 64, C = 64;
  EXPECT_EQ((*op)["counted_bytes"], 4.0 * (2 * N * C + 2 * C + 2 * N));
  EXPECT_EQ((*op)["budget_bytes"], (*op)["counted_bytes"]);
  EXPECT_TRUE(report["races"].empty()) << report["races"];
#else
  expect_failure(run("bench", {"--emulator-report", "report"}), 2, "--emulator-report: needs the program");
#endif
}

// The layernorms of the ladder read x and write out, N·C floats each, w and bias, C floats each, and write
// mean and rstd, N floats each. Version 1 has a thread for each row: a warp's lanes read 32 sectors where
// four would do.
TEST_F(Stage2Emulated, PrintsTheSumsOfKernels) {
#ifdef STAGEGPT_PROFILE
  const auto sums =
      nlohmann::json::parse(stage2("bench", {"--ladder", "layernorm", "--emulator-report", "-"}).output);
  constexpr int N = 64, C = 192;
  int launches = 0;
  std::int64_t sectors = 0;
  for (const auto& [name, kernel] : sums["kernels"].items()) {
    EXPECT_EQ(kernel["bytes_least"], 4 * (2 * N * C + 2 * C + 2 * N)) << name;
    EXPECT_EQ(kernel["launches"], 1) << name;
    ++launches;
    sectors += kernel["sectors"].get<std::int64_t>();
  }
  EXPECT_GE(launches, 4);
  EXPECT_EQ(sums["all"]["launches"], launches);
  EXPECT_EQ(sums["all"]["sectors"], sectors);
  EXPECT_EQ(sums["races"], 0);
  EXPECT_LT(sums["kernels"]["layernorm_v1_kernel"]["sector_efficiency"], 0.2);
  EXPECT_EQ(sums["kernels"]["layernorm_v2_kernel"]["sector_efficiency"], 1);
  EXPECT_FALSE(std::filesystem::exists(directory_.path() / "-"));
#else
  expect_failure(run("bench", {"--emulator-report", "-"}), 2, "--emulator-report: needs the program");
#endif
}

TEST_F(Stage2Emulated, CountsOneVersionOfALadder) {
  expect_failure(run("bench", {"--ladder-version", "v2"}), 2, "--ladder-version: needs --ladder");
  expect_failure(run("bench", {"--ladder", "layernorm", "--ladder-version", "v9"}), 2,
                 "--ladder-version: no version \"v9\" (there are: v1 thread per row, ");
#ifdef STAGEGPT_PROFILE
  const auto sums = nlohmann::json::parse(
      stage2("bench", words("--ladder layernorm --ladder-version v2 --emulator-report -")).output);
  EXPECT_EQ(sums["kernels"].size(), 1u);
  EXPECT_TRUE(sums["kernels"].contains("layernorm_v2_kernel"));
#endif
}

// By counters alone, the versions of a ladder rank as their authors say. Products: tiles in shared memory,
// then in registers, ask less of global memory. LayerNorm: a warp's lanes read neighbours from v2 on, v3
// needs no barrier, v4 needs a quarter of the requests for x, w, bias and out.
TEST_F(Stage2Emulated, CountersRankTheLadders) {
#ifdef STAGEGPT_PROFILE
  const auto report = [&](const char* ladder) {
    stage2("bench", {"--ladder", ladder, "--emulator-report", ladder});
    const auto kernels =
        nlohmann::json::parse(read_bytes(directory_.path() / ladder / "report.json"))["kernels"];
    nlohmann::json by_name;
    for (const auto& kernel : kernels) by_name[kernel["name"].get<std::string>()] = kernel;
    return by_name;
  };
  const auto global = [](const nlohmann::json& kernel, const char* count) {
    std::int64_t sum = 0;
    for (const auto& access : kernel["accesses"])
      sum += access["memory"] == "global" ? access[count].get<std::int64_t>() : 0;
    return sum;
  };
  const auto asked = [](const nlohmann::json& kernel) {
    std::int64_t sum = 0;
    for (const auto& array : kernel["arrays"]) {
      sum +=
          array["requested"]["read"].get<std::int64_t>() + array["requested"]["written"].get<std::int64_t>();
    }
    return sum;
  };
  const auto barriers = [](const nlohmann::json& kernel) {
    std::int64_t sum = 0;
    for (const auto& call : kernel["calls"])
      sum += call["call"] == "__syncthreads" ? call["calls"].get<std::int64_t>() : 0;
    return sum;
  };
  const auto matmul = report("matmul");
  EXPECT_GT(asked(matmul["matmul_naive_kernel"]), 8 * asked(matmul["matmul_tiled_kernel"]));
  EXPECT_GT(asked(matmul["matmul_tiled_kernel"]), asked(matmul["matmul_vectorised_kernel"]));
  const auto layernorm = report("layernorm");
  const auto &v1 = layernorm["layernorm_v1_kernel"], &v2 = layernorm["layernorm_v2_kernel"],
             &v3 = layernorm["layernorm_forward_kernel<float, 1>"],
             &v4 = layernorm["layernorm_forward_kernel<float, 4>"];
  EXPECT_GT(global(v1, "sectors"), 4 * global(v2, "sectors"));
  EXPECT_EQ(global(v2, "sectors"), global(v3, "sectors"));
  EXPECT_EQ(global(v3, "sectors"), global(v4, "sectors"));
  EXPECT_GT(barriers(v2), 0);
  EXPECT_EQ(barriers(v3) + barriers(v4), 0);
  EXPECT_GT(global(v3, "requests"), 2 * global(v4, "requests"));
#endif
}

// The page of one block needs nothing else, and the launch that it shows is the one that was asked for.
TEST_F(Stage2Emulated, StepsThroughOneBlock) {
#ifdef STAGEGPT_PROFILE
  const auto layernorm = [](const char* report, const char* block) {
    return Arguments{"--ladder", "layernorm", "--emulator-report", report, "--emulator-block", block};
  };
  stage2("bench", layernorm("report", "layernorm_v2_kernel:0:3"));
  const auto block = nlohmann::json::parse(read_bytes(directory_.path() / "report" / "block.json"));
  EXPECT_EQ(block["block_index"], nlohmann::json({3, 0, 0}));
  // Row 3 of C = 192 floats: the first warp reads 128 bytes of argument 4, x, from byte 3 · 192 · 4 on.
  const auto& first = block["events"][0];
  EXPECT_EQ(first["argument"], 4);
  EXPECT_EQ(first["first"], 3 * 192 * 4);
  EXPECT_EQ(first["stride"], 4);
  EXPECT_EQ(first["sectors"], 4);
  // Two sums of 256 numbers in shared memory, of log2(256) + 1 barriers each.
  EXPECT_EQ(
      std::ranges::count_if(block["events"], [](const auto& event) { return event["kind"] == "barrier"; }),
      2 * 9);
  const std::string page = read_bytes(directory_.path() / "report" / "block.html");
  EXPECT_EQ(page.find("src="), std::string::npos);
  EXPECT_EQ(page.find("href="), std::string::npos);
  EXPECT_NE(page.find("default-src 'none'"), std::string::npos);
  const std::string report = read_bytes(directory_.path() / "report" / "index.html");
  EXPECT_NE(report.find("block.html"), std::string::npos);
  EXPECT_NE(report.find("<th scope=rowgroup>"), std::string::npos);  // a file of the source
  EXPECT_EQ(report.find("<th>"), std::string::npos);

  expect_failure(run("bench", layernorm("other", "layernorm_v9_kernel")), 2,
                 "--emulator-block: no kernel \"layernorm_v9_kernel\" was launched");
  EXPECT_TRUE(std::filesystem::exists(directory_.path() / "other" / "report.txt"));
  expect_failure(run("bench", layernorm("other", "layernorm_v2_kernel:0:64")), 2,
                 "has 64 blocks (0 to 63), got block 64");
  expect_failure(run("bench", layernorm("-", "layernorm_v2_kernel")), 2,
                 "--emulator-block: needs --emulator-report DIR");
#endif
  expect_failure(run("bench", {"--emulator-block", "layernorm_v2_kernel"}), 2,
                 "--emulator-block: needs --emulator-report DIR");
}

// Without addr2line no source line is known, and the counts are there.
TEST_F(Stage2Emulated, CountsWithoutSourceLines) {
  if (!std::filesystem::exists(std::string(STAGEGPT_BIN_DIR) + "/stage2_train_profiled")) GTEST_SKIP();
  const Arguments counted = with_flags(kFourSteps, {"--stop-after", "1", "--emulator-report", "report"});
  expect_done(run("train", small("run", counted), {.environment = {{"PATH", directory_.path()}}}));
  const auto report = nlohmann::json::parse(read_bytes(directory_.path() / "report" / "report.json"));
  EXPECT_GT(report["kernels"].size(), 10u);
}

TEST_F(Stage2Emulated, RefusesWhatCannotBeCountedOrProfiled) {
  const auto refused = [&](const char* program, const Arguments& flags, const char* why) {
    const Arguments all = program == std::string("train") ? small("refused", flags) : flags;
    expect_failure(run(program, all), 2, why);
  };
  refused("train", {"--emulator-report", "r", "--profile", "p.json"},
          "--profile: cannot be combined with --emulator-report");
  refused("train", {"--emulator-report", "r", "--dry-run"},
          "--emulator-report: cannot be combined with --dry-run");
  refused("bench", {"--emulator-report", "r", "--profile", "p.json"},
          "--profile: cannot be combined with --emulator-report");
  refused("bench", {"--emulator-report", "r", "--budget"},
          "--emulator-report: cannot be combined with --budget");
  refused("bench", {"--emulator-report", "r", "--generate"},
          "--emulator-report: cannot be combined with --generate");
  refused("bench", {"--ladder", "layernorm", "--profile", "p.json"},
          "--profile: cannot be combined with --ladder");
  EXPECT_FALSE(std::filesystem::exists(directory_.path() / "p.json"));
}

TEST_F(Stage2Emulated, AnotherThreadOrderGivesTheSameBits) {
  const Arguments shorter = with_flags(kFourSteps, kFewSequences + Arguments{"--stop-after", "2"});
  stage2("train", small("forward", shorter));
  for (const char* order : {"reverse", "random:7"}) {
    expect_done(run("train", small(order, shorter), {.environment = {{"STAGEGPT_EMULATOR_ORDER", order}}}));
    EXPECT_EQ(hash_after(2, order), hash_after(2, "forward")) << order;
  }
  stage2("train", small("threads", with_flags(shorter, {"--threads", "3"})));
  EXPECT_EQ(hash_after(2, "threads"), hash_after(2, "forward"));
}

TEST_F(Stage2Emulated, EveryVersionOfTheProductTrainsAsTheLibrarys) {
  const Arguments shorter = words("--batch-size 4 --stop-after 3 --eval-every 2");
  stage2("train", small("library", shorter));
  for (const char* matmul : {"naive", "tiled", "vectorised"}) {
    stage2("train", small(matmul, with_flags(shorter, {"--gpu-matmul", matmul})));
    expect_same_curves(matmul, "library");
  }
}

// With materialised attention, most of this model's memory would be the scores of a sequence and their
// gradient, (2,NH,T,T). The other versions of attention do not store them.
TEST_F(Stage2Emulated, OnlyMaterialisedAttentionHoldsScores) {
  constexpr double kHeads = 8, kT = 128;
  const auto peak_bytes = [&](const char* attention) {
    const ProgramResult result =
        stage2("bench", words("--n-layer 1 --n-embd 32 --n-head 8 --block-size 128 --batch-size 1 --steps 1 "
                              "--warmup 0 --json") +
                            Arguments{"--gpu-attention", attention});
    return nlohmann::json::parse(result.output)["peak_memory_bytes"].get<double>();
  };
  const double scores = 2 * kHeads * kT * kT * sizeof(float), flash = peak_bytes("flash");
  EXPECT_GT(peak_bytes("materialised"), flash + scores / 2);
  EXPECT_LT(flash, scores);
}

TEST_F(Stage2Emulated, WritesAsStage0) {
  stage0("train", small("run"));
  const Arguments text = words("--model run --prompt the --max-new-tokens 14 --temperature 0");
  const std::string expected = stage0("generate", text).output;
  EXPECT_EQ(stage2("generate", text).output, expected);
  EXPECT_EQ(stage2("generate", with_flags(text, {"--weights", "bf16"})).output,
            stage0("generate", with_flags(text, {"--weights", "bf16"})).output);
}

TEST_F(Stage2Emulated, EvaluatesAsStage0) {
  stage0("train", small("run"));
  const Arguments text = words("--model run --data t.txt --val-fraction 0.05 --stride 7 --json");
  const auto expected = nlohmann::json::parse(stage0("evaluate", text).output),
             found = nlohmann::json::parse(stage2("evaluate", text).output),
             bf16 =
                 nlohmann::json::parse(stage2("evaluate", with_flags(text, {"--precision", "bf16"})).output);
  EXPECT_NEAR(found["loss"], expected["loss"], 1e-5);
  EXPECT_EQ(found["tokens"], expected["tokens"]);
  EXPECT_NEAR(bf16["loss"], expected["loss"], 2e-2);
  EXPECT_NE(bf16["loss"], found["loss"]);
}

TEST_F(Stage2Emulated, VerifiesTheGoldenModel) {
  for (const char* matmul : {"naive", "tiled", "vectorised", "cublaslt"}) {
    const ProgramResult result = stage2("verify", {"--model", kTiny, "--state", kTinyState, "--steps", "2",
                                                   "--json", "--gpu-matmul", matmul});
    const auto json = nlohmann::json::parse(result.output);
    EXPECT_TRUE(json["passed"].get<bool>()) << matmul;
    EXPECT_EQ(json["tensors"].size(), 28u);
  }
}

// Between the steps, other work uses the memory of a graph: validations, samples, and a trace.
TEST_F(Stage2Emulated, AStepIsGraphsWithTheSameBits) {
  const Arguments flags = with_flags(
      kFewSequences, words("--grad-accumulation 2 --dropout 0.1 --stop-after 4 --eval-every 2 --sample-every "
                           "3 --trace-steps 1 --max-new-tokens 10 --grad-clip 0.1 --warmup-steps 3"));
  stage2("train", small("default", flags));
  stage2("train", small("off", with_flags(flags, {"--gpu-graph", "off"})));
  EXPECT_EQ(hash_after(4, "default"), hash_after(4, "off"));
  EXPECT_EQ(metric("default", "loss"), metric("off", "loss"));
}

// A run that was begun without graphs, by an older program, goes on without.
TEST_F(Stage2Emulated, ARunKeepsItsChoiceOfGraphs) {
  const auto has_graphs = [](const ProgramResult& result) {
    return result.errors.find("; with CUDA graphs\n") != std::string::npos;
  };
  const Arguments flags = with_flags(kFourSteps, {"--stop-after", "3"});
  EXPECT_TRUE(has_graphs(stage2("train", small("default", flags))));
  EXPECT_FALSE(has_graphs(stage2("train", small("off", with_flags(flags, {"--gpu-graph", "off"})))));
  for (const char* run : {"default", "off"}) {
    const bool graphs = has_graphs(stage2("train", {"--resume", run, "--stop-after", "6"}));
    EXPECT_EQ(graphs, run == std::string("default"));
  }
  EXPECT_EQ(hash_after(6, "default"), hash_after(6, "off"));
}

// A watched step is no graph, the steps between are.
TEST_F(Stage2Emulated, LayersAreTheSameWithGraphsAndWithout) {
  const Arguments steps = with_flags(kFourSteps, {"--grad-accumulation", "2"});
  const Arguments watched = with_flags(steps, {"--watch-layers", "2"});
  stage2("train", small("off", with_flags(watched, {"--gpu-graph", "off"})));
  stage2("train", small("on", with_flags(watched, {"--gpu-graph", "on"})));
  stage2("train", small("not_watched", with_flags(steps, {"--gpu-graph", "on"})));
  expect_same_layers("on", "off", 0);
  for (const char* run : {"on", "not_watched"}) {
    EXPECT_EQ(hash_after(4, run), hash_after(4, "off"));
    EXPECT_EQ(metric(run, "loss"), metric("off", "loss"));
  }
}

TEST_F(Stage2Emulated, RefusesGraphsOfWhatIsWatchedOpByOp) {
  expect_failure(run("train", small("run", {"--gpu-graph", "on", "--profile", "p.json"})), 2,
                 "--gpu-graph: on is not possible, because --profile times each op");
  expect_failure(run("train", small("run", {"--gpu-graph", "on"}), kDirect), 2,
                 "--gpu-graph: on is not possible, because STAGEGPT_ALLOCATOR=direct keeps no memory");
#ifdef STAGEGPT_PROFILE
  expect_failure(run("train", small("run", {"--gpu-graph", "on", "--emulator-report", "r"})), 2,
                 "--gpu-graph: on is not possible, because --emulator-report counts each op");
#endif
  EXPECT_FALSE(std::filesystem::exists(directory_.path() / "run"));
}

TEST_F(Stage2Emulated, RecordsNoGraphsOfWhatIsWatchedOpByOp) {
  const auto expect_none = [](const ProgramResult& result, const char* why) {
    const std::string said = concat("; no CUDA graphs, because ", why, "\n");
    expect_said(expect_done(result), said);
  };
  const Arguments flags = with_flags(kFourSteps, {"--stop-after", "3"});
  stage2("train", small("default", flags));
  expect_none(run("train", small("profile", with_flags(flags, {"--profile", "p.json"}))),
              "--profile times each op");
  expect_none(run("train", small("direct", flags), kDirect),
              "STAGEGPT_ALLOCATOR=direct keeps no memory for them");
  for (const char* run : {"profile", "direct"}) EXPECT_EQ(hash_after(3, run), hash_after(3, "default"));
}

// A token is one graph, its position and its id are one copy, and its logits another.
TEST_F(Stage2Emulated, ATokenIsOneGraphOfFiveKernelsALayer) {
  const Arguments flags =
      words("--generate --n-layer 12 --n-embd 32 --n-head 2 --steps 1 --json --precision bf16");
  for (const char* graph : {"auto", "off"}) {
    const auto work = nlohmann::json::parse(
        stage2("bench", with_flags(flags, {"--gpu-graph", graph})).output)["device_work"];
    const bool recorded = graph == std::string("auto");
    EXPECT_EQ(work["kernels"], 12 * 5 + 5)
        << "embedding, last layernorm, head, the logits in f32, and the largest one";
    EXPECT_EQ(work["launches"], work["kernels"]);
    EXPECT_EQ(work["graphs"], recorded ? 1 : 0);
    EXPECT_EQ(work["in_graphs"], recorded ? 12 * 5 + 4 : 0) << "all but the last";
    EXPECT_EQ(work["copies"], 2);
    EXPECT_EQ(work["allocations"], 0);
    EXPECT_EQ(work["waits"], 1);
  }
}

// Its rows are those of the op that generation has for a token.
TEST_F(Stage2Emulated, InspectsATextOfOneToken) {
  stage0("train", small("run", {"--stop-after", "1"}));
  const Arguments text = words("--model run --prompt t --json -");
  const auto read = [](const ProgramResult& result) { return nlohmann::json::parse(result.output)["lens"]; };
  EXPECT_EQ(read(stage2("inspect", text)).size(), read(stage0("inspect", text)).size());
}

// The texts are longer than the context, so that the cache begins anew several times, with the recording that
// there is. A prompt of one token has no pass of several.
TEST_F(Stage2Emulated, GeneratesTheSameTextWithAndWithoutGraphs) {
  stage0("train", small("run"));
  const auto written = [&](const std::vector<Arguments>& parts) {
    Arguments text = words("--model run --max-new-tokens 40 --num-samples 2");
    for (const Arguments& part : parts) text = with_flags(text, part);
    return stage2("generate", text).output;
  };
  for (const Arguments& text : std::vector<Arguments>{{"--prompt", "the"},
                                                      words("--prompt t --top-k 5 --precision bf16"),
                                                      words("--prompt the --top-k 3 --top-p 0.9")}) {
    const std::string expected = written({text, {"--gpu-graph", "off"}});
    EXPECT_EQ(written({text}), expected);
    EXPECT_GT(expected.size(), 60u);
  }
  const Arguments greedy = words("--model run --prompt the --max-new-tokens 14 --temperature 0");
  const std::string expected = stage0("generate", greedy).output;
  for (const Arguments& how :
       {words("--temperature 2"), words("--temperature 2 --weights bf16"), words("--top-k 5")}) {
    const Arguments three = with_flags(with_flags(greedy, how), {"--num-samples", "3"});
    EXPECT_EQ(stage2("generate", three).output, stage0("generate", three).output);
  }
  for (const Arguments& how : {Arguments{"--gpu-graph", "on"}, Arguments{"--no-fused"}})
    EXPECT_EQ(stage2("generate", with_flags(greedy, how)).output, expected);
  expect_failure(run("generate", with_flags(greedy, {"--gpu-graph", "on", "--profile", "p.json"})), 2,
                 "--gpu-graph: on is not possible, because --profile times each op");
}

// The launches of a step depend on the number of layers, here that of GPT-2 124M, and on the size of the
// vocabulary: two of them sort tokens by each 8 bits of their ids.
TEST_F(Stage2Emulated, AStepHasFewLaunchesNoAllocationAndOneWait) {
  for (const std::string precision : {"f32", "bf16"}) {
    const ProgramResult result = stage2(
        "bench", {"--n-layer", "12", "--n-embd", "32", "--n-head", "2", "--batch-size", "2", "--seq-len", "8",
                  "--steps", "1", "--warmup", "2", "--json", "--precision", precision, "--gpu-graph", "off"});
    const auto work = nlohmann::json::parse(result.output)["device_work"];
    // A layer has 4 products and 4 kernels in the forward, 8 products and 12 kernels in the backward: in
    // each, one of them is for GELU, and 4 of the backward's are for gradients of biases. In bf16 these are
    // no kernels, but epilogues of products.
    const bool epilogues = precision == "bf16";
    EXPECT_EQ(work["products"], 12 * 12 + 3) << precision;
    EXPECT_GE(work["kernels"], 12 * (epilogues ? 9 : 15)) << precision;
    EXPECT_LE(work["launches"], epilogues ? 287 : 360) << precision;
    EXPECT_EQ(work["allocations"], 0) << precision;
    EXPECT_EQ(work["waits"], 1) << precision << ": for the results, at the end";
    EXPECT_EQ(work["graphs"], 0) << precision;
  }
}

// The host launches one graph for forward and backward, and one for the update.
TEST_F(Stage2Emulated, AStepInGraphsHasTwoLaunches) {
  const ProgramResult result = stage2(
      "bench",
      words("--n-layer 1 --n-embd 32 --n-head 2 --batch-size 2 --seq-len 8 --steps 1 --warmup 3 --json"));
  const auto work = nlohmann::json::parse(result.output)["device_work"];
  EXPECT_EQ(work["graphs"], 2);
  EXPECT_EQ(work["in_graphs"], work["launches"]);
  EXPECT_GT(work["launches"], 30);
  EXPECT_EQ(work["allocations"], 0);
  EXPECT_EQ(work["waits"], 1);
}

TEST_F(Stage2Emulated, BenchReports) {
  const ProgramResult result = stage2(
      "bench",
      words("--n-layer 1 --n-embd 32 --batch-size 2 --seq-len 16 --steps 2 --warmup 1 --threads 3 --json"));
  const auto json = nlohmann::json::parse(result.output);
  EXPECT_GT(json["tokens_per_second"], 0);
  EXPECT_EQ(json["threads"], 3);
  EXPECT_FALSE(json["kernels"].empty());
  const std::string table =
      stage2("bench", words("--n-layer 1 --n-embd 32 --seq-len 16 --steps 1 --warmup 0 --precision tf32"))
          .output;
  EXPECT_NE(table.find("emulated GPU on "), std::string::npos) << table;
  EXPECT_NE(table.find("; tf32, "), std::string::npos) << table;
}

TEST_F(Stage2Emulated, LaddersAreRightBeforeTheyAreTimed) {
  const ProgramResult result = stage2("bench", {"--ladder", "layernorm"});
  EXPECT_NE(result.output.find("v1"), std::string::npos) << result.output;
  EXPECT_NE(result.output.find("These are times of the emulator."), std::string::npos) << result.output;
  expect_failure(run("bench", {"--ladder", "layernorm", "--precision", "bf16"}), 2, "layernorm are in f32");
}

std::vector<double> numbers_in(const std::string& text) {
  std::vector<double> numbers;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (std::isdigit(static_cast<unsigned char>(text[i])) == 0) continue;
    std::size_t digits = 0;
    numbers.push_back(std::stod(text.substr(i), &digits));
    i += digits;
  }
  return numbers;
}

// Layernorm (N,C) moves at least 8 bytes per element (4 read, 4 written). A product (M,K) · (K,N) takes 2MKN
// operations. Attention (B,T,NH,HS) takes 4·HS for each of the T(T+1)/2 pairs of a query and a key.
TEST_F(Stage2Emulated, RatesOfLaddersAreThoseOfTheirSizes) {
  const auto work_of = [](const std::string& ladder, const std::vector<double>& size) {
    if (ladder == "layernorm") return 8 * size.at(0) * size.at(1);
    if (ladder == "matmul") return 2 * size.at(0) * size.at(1) * size.at(3);
    return 2 * size.at(0) * size.at(1) * (size.at(1) + 1) * size.at(2) * size.at(3);
  };
  for (const auto& [ladder, precision] :
       {std::pair<std::string, std::string>{"layernorm", "f32"}, {"matmul", "bf16"}, {"attention", "f32"}}) {
    const auto json = nlohmann::json::parse(
        stage2("bench", {"--ladder", ladder, "--precision", precision, "--json"}).output);
    const double work = work_of(ladder, numbers_in(json["ladder"]));
    EXPECT_EQ(json["on_gpu"], false);
    EXPECT_EQ(json["reference"], json["versions"].back()["name"]);
    EXPECT_NE(json["bound_name"], "");
    EXPECT_TRUE(json.contains("busy"));
    for (const auto& version : json["versions"]) {
      EXPECT_NEAR(version["rate"].get<double>() * 1e9 * version["us"].get<double>() / 1e6, work, 1e-9 * work)
          << version;
      EXPECT_NEAR(version["share"].get<double>() * json["bound"].get<double>(), version["rate"], 1e-9)
          << version;
    }
  }
}

TEST_F(Stage2Emulated, RefusesWhatItCannotDo) {
  expect_failure(run("train", small("run", {"--device", "8"})), 2, "--device");
  expect_failure(run("train", small("run", {"--threads", "17"})), 2, "--threads");
  expect_failure(run("train", small("run", {"--comm", "flat"})), 2, "stages 1 and 3");
  expect_failure(run("train", small("run", {"--cpu-matmul", "tiled"})), 2, "stages 0 and 1");
  expect_failure(run("train", small("run", {"--precision", "f16"})), 2, "tf32");
  for (const char* variable : {"STAGEGPT_EMULATOR_ORDER", "STAGEGPT_EMULATOR_STREAMS",
                               "STAGEGPT_EMULATOR_DEVICES", "STAGEGPT_EMULATOR_CAPABILITY"}) {
    expect_failure(run("train", small("run"), {.environment = {{variable, "sideways"}}}), 2, variable);
  }
}

const RunOptions kSmallDevice{.environment = {{"STAGEGPT_EMULATOR_MEMORY", "2000000"}}};

// Programs refuse to start without enough device memory. With --ignore-memory they start, and then fail.
TEST_F(Stage2Emulated, BeginsNothingThatADeviceHasNoRoomFor) {
  const Arguments wide = {"--n-embd", "128"}, anyway = {"--ignore-memory"};
  expect_failure(run("train", small("run", wide), kSmallDevice), 2, "1.9 MiB are available on the device");
  EXPECT_FALSE(std::filesystem::exists(directory_.path() / "run"));
  const auto plan = nlohmann::json::parse(
      expect_done(run("train", small("run", {"--n-embd", "128", "--dry-run", "--json"}), kSmallDevice))
          .output);
  EXPECT_EQ(plan["available_bytes"], 2000000);
  EXPECT_EQ(plan["needed_bytes"], plan["memory_bytes"]["total"]);
  EXPECT_EQ(plan["fits"], false);
  for (const Arguments& more : {Arguments{}, Arguments{"--generate"}}) {
    const Arguments bench = with_flags(wide, more);
    expect_failure(run("bench", bench, kSmallDevice), 2, "1.9 MiB are available on the device");
    expect_failure(run("bench", with_flags(bench, anyway), kSmallDevice), 1, "out of memory");
  }
  stage0("train", small("run", {"--n-embd", "256", "--stop-after", "1"}));
  const Arguments write = {"--model", "run", "--prompt", "the"};
  expect_failure(run("generate", write, kSmallDevice), 2, "1.9 MiB are available on the device");
  expect_failure(run("generate", with_flags(write, anyway), kSmallDevice), 1, "out of memory");
}

// The weights have room on the device. The batches that exist count, not those that --batch-size allows.
TEST_F(Stage2Emulated, EvaluatesNoBatchThatADeviceHasNoRoomFor) {
  stage0("train", small("run", {"--stop-after", "1"}));
  const std::string question =
      R"({"context": "the cat sat", "endings": ["the cat", "the cats"], "label": 0})";
  std::string questions;
  for (int i = 0; i < 200; ++i) questions += question + '\n';
  directory_.write("short.txt", "the cat sat on the mats.\n");
  directory_.write("task.jsonl", questions);
  directory_.write("short.jsonl", question);
  const auto evaluate = [&](const char* flag, const char* file) {
    return run("evaluate", {"--model", "run", "--batch-size", "1e5", flag, file}, kSmallDevice);
  };
  expect_done(evaluate("--data", "short.txt"));
  expect_done(evaluate("--task", "short.jsonl"));
  expect_failure(evaluate("--data", "t.txt"), 2,
                 "--batch-size: evaluation in batches of 313 windows of 16 tokens takes ");
  expect_failure(evaluate("--task", "task.jsonl"), 2,
                 "--batch-size: evaluation in batches of 400 endings of 16 tokens takes ");
}

TEST_F(Stage2Emulated, TellsWhatMemoryItAskedForAndWhatIsFree) {
  const ProgramResult result =
      run("train", small("run", {"--n-embd", "128", "--ignore-memory"}), kSmallDevice);
  expect_failure(result, 1, "out of memory");
  expect_said(result, "free");
  expect_said(result, "--batch-size");
}

}  // namespace
}  // namespace stagegpt::test
