// Stage 2's programs on the emulator, compared with stage 0's.
#include <nlohmann/json.hpp>

#include "common/base/error.h"
#include "tests/stages/stage2_emulated.h"

namespace stagegpt::test {
namespace {

constexpr const char* kTiny = STAGEGPT_SOURCE_DIR "/tests/golden/tiny.bin";
constexpr const char* kTinyState = STAGEGPT_SOURCE_DIR "/tests/golden/tiny_debug_state.bin";

const RunOptions kDirect = {.environment = {{"STAGEGPT_ALLOCATOR", "direct"}}};

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
    Arguments text = words("--model run --max-new-tokens 40");
    for (const Arguments& part : parts) text = with_flags(text, part);
    return stage2("generate", text).output;
  };
  for (const Arguments& text : std::vector<Arguments>{{"--prompt", "the"},
                                                      words("--prompt the --num-samples 2"),
                                                      words("--prompt t --top-k 5 --precision bf16"),
                                                      words("--prompt the --top-k 3 --top-p 0.9")}) {
    const std::string expected = written({text, {"--gpu-graph", "off"}});
    EXPECT_EQ(written({text}), expected);
    EXPECT_GT(expected.size(), 35u);
  }
  const Arguments greedy = words("--model run --prompt the --max-new-tokens 14 --temperature 0");
  const std::string expected = stage0("generate", greedy).output;
  for (const Arguments& how :
       {words("--temperature 2"), words("--temperature 2 --weights bf16"), words("--top-k 5")}) {
    const Arguments three = with_flags(with_flags(greedy, how), {"--num-samples", "3"});
    EXPECT_EQ(stage2("generate", three).output, stage0("generate", three).output);
  }
  // In two groups: the second one begins with the recording of the first, or has one of its own.
  for (const char* count : {"34", "33"}) {
    const Arguments many =
        with_flags(greedy, {"--num-samples", count, "--temperature", "2", "--max-new-tokens", "3"});
    EXPECT_EQ(stage2("generate", many).output, stage0("generate", many).output);
  }
  for (const Arguments& how : {Arguments{"--gpu-graph", "on"}, Arguments{"--no-fused"}})
    EXPECT_EQ(stage2("generate", with_flags(greedy, how)).output, expected);
  expect_failure(run("generate", with_flags(greedy, {"--gpu-graph", "on", "--profile", "p.json"})), 2,
                 "--gpu-graph: on is not possible, because --profile times each op");
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
