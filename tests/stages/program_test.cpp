// Tests of the programs stage0_train, stage0_verify and stage0_bench.
#include "tests/support/program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <thread>
#include <tuple>

namespace stagegpt::test {
namespace {

using Arguments = std::vector<std::string>;

constexpr const char* kTiny = STAGEGPT_SOURCE_DIR "/tests/golden/tiny.bin";
constexpr const char* kTinyState = STAGEGPT_SOURCE_DIR "/tests/golden/tiny_debug_state.bin";

// Flags of a run that takes less than a second: a small model and a text with a period of 25 characters.
// Windows of 16 characters begin at all positions of this period.
Arguments small_run(const ScratchDirectory& directory) {
  std::string text;
  for (int i = 0; i < 200; ++i) text += "the cat sat on the mats.\n";
  return words(
             "--tokenizer char --n-layer 1 --n-head 2 --n-embd 16 --block-size 16 --batch-size 4 --steps 200 "
             "--learning-rate 0.01 --max-new-tokens 40") +
         Arguments{"--data", directory.write("text.txt", text)};
}

TEST(Train, LearnsAndWrites) {
  const ScratchDirectory directory;
  const ProgramResult result =
      run_program("stage0_train", small_run(directory) + Arguments{"--json"}, directory.path());
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  const auto json = nlohmann::json::parse(result.output);
  EXPECT_LT(json["validation_loss"].get<double>(), 1.0);  // untrained: log 14 = 2.6
  EXPECT_EQ(json["sample"].get<std::string>().size(), 40u);
  expect_said(result, "step 200/200");
  EXPECT_EQ(result.errors.find('\r'), std::string::npos);  // not a terminal: plain lines
}

// The program starts itself again; the first one's main thread may be bound to one core by then.
TEST(Train, SpreadsItsThreadsOverTheCoresThatOpenMpIsGiven) {
  if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "needs two cores";
  const ScratchDirectory directory;
  Arguments arguments = small_run(directory) + Arguments{"--threads", "2"};
  *std::ranges::find(arguments, "200") = "1";
  const RunOptions options = {.environment = {{"OMP_PLACES", "threads"},
                                              {"OMP_PROC_BIND", "spread"},
                                              {"OMP_DISPLAY_AFFINITY", "TRUE"},
                                              {"OMP_AFFINITY_FORMAT", "on core %A"}}};
  std::istringstream lines(run_program("stage0_train", arguments, directory.path(), options).errors);
  std::set<std::string> cores;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("on core ")) cores.insert(line);
  }
  EXPECT_EQ(cores.size(), 2u);
}

TEST(Train, MeasuresBitsPerByte) {
  const ScratchDirectory directory;
  const auto run = [&](const std::string& tokenizer, const std::string& vocab_size) {
    Arguments arguments = small_run(directory) + Arguments{"--json"};
    *std::ranges::find(arguments, "char") = tokenizer;
    *std::ranges::find(arguments, "200") = "2";
    if (!vocab_size.empty()) arguments = arguments + Arguments{"--vocab-size", vocab_size};
    const ProgramResult result = run_program("stage0_train", arguments, directory.path());
    return result.exit_code == 0 ? nlohmann::json::parse(result.output) : nlohmann::json();
  };
  // Here each token is one byte: with the tokenizer char, and with bpe without merges.
  for (const auto& json : {run("char", ""), run("bpe", "257")}) {
    EXPECT_NEAR(json["bits_per_byte"], json["validation_loss"].get<double>() / std::log(2.0), 1e-9);
  }
  // The text has a period of 25 bytes, which is 9 tokens: "the", " cat", " sat", " on", " the", " mat", "s",
  // ".", "\n".
  const auto json = run("bpe", "269");
  EXPECT_NEAR(json["bits_per_byte"], json["validation_loss"].get<double>() / std::log(2.0) * 9 / 25, 0.1);
}

TEST(Train, SpecialTokensAreNoBytes) {
  const ScratchDirectory directory;
  for (int i = 0; i < 100; ++i)
    directory.write("part" + std::to_string(100 + i) + ".txt", "the cat sat on the mats.\n");
  Arguments arguments = small_run(directory) + Arguments{"--json"};
  *std::ranges::find(arguments, (directory.path() / "text.txt").string()) =
      (directory.path() / "part*.txt").string();
  *std::ranges::find(arguments, "200") = "2";
  ProgramResult result = run_program("stage0_train", arguments, directory.path());
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  const auto json = nlohmann::json::parse(result.output);
  // 26 tokens for 25 bytes.
  EXPECT_NEAR(json["bits_per_byte"], json["validation_loss"].get<double>() / std::log(2.0) * 26 / 25, 0.02);
  // The number of bytes of unknown words is not known, so there is no value.
  *std::ranges::find(arguments, "char") = "word";
  result = run_program("stage0_train", arguments + Arguments{"--vocab-size", "6"}, directory.path());
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_TRUE(nlohmann::json::parse(result.output)["bits_per_byte"].is_null());
}

TEST(Train, SameSeedSameResult) {
  const ScratchDirectory directory;
  const auto result = [&](const std::string& seed) {
    Arguments arguments = small_run(directory) + Arguments{"--seed", seed, "--json"};
    *std::ranges::find(arguments, "200") = "20";
    const auto json = nlohmann::json::parse(run_program("stage0_train", arguments, directory.path()).output);
    return std::tuple(json["loss"].get<double>(), json["validation_loss"].get<double>(),
                      json["sample"].get<std::string>());
  };
  const auto first = result("7");
  EXPECT_EQ(first, result("7"));
  EXPECT_NE(first, result("8"));
}

TEST(Train, DivergenceIsAFailureThatNamesTheStep) {
  const ScratchDirectory directory;
  expect_failure(run_program("stage0_train", small_run(directory) + Arguments{"--learning-rate", "1e30"},
                             directory.path()),
                 1, "a lower --learning-rate may help");
}

TEST(Verify, PassesOnTheReferenceInEveryVersion) {
  for (const char* matmul : {"naive", "tiled", "packed", "packed-bf16", "blas"}) {
    const ProgramResult result = run_program(
        "stage0_verify",
        {"--model", kTiny, "--state", kTinyState, "--steps", "2", "--json", "--cpu-matmul", matmul}, ".");
    ASSERT_EQ(result.exit_code, 0) << result.errors;
    const auto json = nlohmann::json::parse(result.output);
    EXPECT_TRUE(json["passed"].get<bool>());
    EXPECT_EQ(json["tensors"].size(), 28u);
    EXPECT_EQ(json["losses"].size(), 2u);
  }
}

// Runs stage0_verify with a reference whose last element, in the gradient of ln_f.bias, is wrong.
ProgramResult verify_wrong_gradient(const Arguments& flags) {
  const ScratchDirectory directory;
  std::string state = read_bytes(kTinyState);
  state[state.size() - 1] = static_cast<char>(state.back() ^ 0x40);
  return run_program("stage0_verify",
                     Arguments{"--model", kTiny, "--state", directory.write("state.bin", state)} + flags,
                     directory.path());
}

TEST(Verify, FailsOnAWrongGradient) {
  const ProgramResult result = verify_wrong_gradient({"--json"});
  EXPECT_EQ(result.exit_code, 1);
  const auto json = nlohmann::json::parse(result.output);
  EXPECT_FALSE(json["passed"].get<bool>());
  for (const auto& tensor : json["tensors"])
    EXPECT_EQ(tensor["ok"].get<bool>(), tensor["name"] != "ln_f.bias");
}

// Each row ends with its verdict: "logits  (2, 17, 101)  3.16e-07  2e-05  ok".
TEST(Verify, PrintsARowForEachTensor) {
  const ProgramResult result = verify_wrong_gradient({"--steps", "2"});
  EXPECT_EQ(result.exit_code, 1);
  std::istringstream lines(result.output);
  std::vector<std::string> ok, failed, others;
  for (std::string line; std::getline(lines, line);) {
    const std::string name = line.substr(0, line.find(' '));
    (line.ends_with("  ok") ? ok : line.ends_with("  FAILED") ? failed : others).push_back(name);
  }
  ASSERT_EQ(ok.size(), 2 + 27u) << result.output;
  EXPECT_EQ(ok[0], "logits");
  EXPECT_EQ(ok[1], "loss");
  EXPECT_EQ(ok[2], "wte.weight");
  EXPECT_EQ(failed, std::vector<std::string>{"ln_f.bias"});
  EXPECT_EQ(others, (std::vector<std::string>{"tensor", "step", "step", "FAILED"}));
}

nlohmann::json bench_json(const Arguments& arguments) {
  const ProgramResult result = expect_done(run_program("stage0_bench", Arguments{"--json"} + arguments, "."));
  return nlohmann::json::parse(result.output);
}

// The report of a small model.
nlohmann::json small_bench(const Arguments& more) {
  return bench_json(words("--batch-size 2 --seq-len 16 --steps 3 --warmup 1") + more);
}

TEST(Bench, ReportsWhatItMeasured) {
  const auto json = small_bench({});
  EXPECT_EQ(json["seq_len"], 16);
  EXPECT_EQ(json["ranks"], 1);
  const double median = json["ms_per_step"]["median"].get<double>();
  EXPECT_LE(json["ms_per_step"]["min"], median);
  EXPECT_GE(json["ms_per_step"]["max"], median);
  EXPECT_NEAR(json["tokens_per_second"].get<double>() * median / 1e3, 2 * 16, 1e-9);
  EXPECT_GT(json["gemm_bound_ms"].get<double>(), 0);
  EXPECT_NEAR(json["efficiency"], json["gemm_bound_ms"].get<double>() / median, 1e-12);
  EXPECT_GT(json["peak_memory_bytes"].get<double>(), 0);
  EXPECT_TRUE(json.contains("busy"));
  // A named peak, in both conventions.
  const double seconds = median / 1e3, tokens = 2 * 16, peak = json["peak_gflops"].get<double>() * 1e9,
               parameters = json["parameters"], attention = 4 * 128 * 16;  // L·C·T of nano
  EXPECT_EQ(json["peak"].get<std::string>().find("measured GEMM "), 0u) << json["peak"];
  EXPECT_NEAR(json["mfu"], tokens * (6 * parameters + 12 * attention) / seconds / peak, 1e-12);
  EXPECT_NEAR(json["mfu_causal"], tokens * (6 * parameters + 6 * attention) / seconds / peak, 1e-12);
  EXPECT_NEAR(json["gflops"].get<double>() * 1e9 / peak, json["mfu_causal"], 1e-12);
}

// The loss and norm do not depend on the division into micro-steps. With weights near zero, all tokens have
// nearly the same probability.
TEST(Bench, HasLossAndNormOfTheFirstStep) {
  const auto first = [](const char* batch, const char* micro_steps) {
    return bench_json({"--batch-size", batch, "--grad-accumulation", micro_steps, "--seq-len", "16",
                       "--vocab-size", "300", "--steps", "1", "--warmup", "0"})["first_step"];
  };
  const auto whole = first("8", "1"), divided = first("2", "4");
  const double loss = whole["loss"].get<double>(), norm = whole["grad_norm"].get<double>();
  EXPECT_NEAR(loss, std::log(300), 0.5);
  EXPECT_GT(norm, 0);
  EXPECT_NEAR(divided["loss"].get<double>() / loss, 1, 1e-5);
  EXPECT_NEAR(divided["grad_norm"].get<double>() / norm, 1, 1e-5);
}

TEST(Bench, AStepTakesItsBoundAtLeast) {
  // Long steps of about 30 ms on one thread: on a busy machine, threads wait for each other, and short
  // measurements may or may not be interrupted.
  const auto json = bench_json(words("--threads 1 --batch-size 4 --seq-len 128 --steps 15 --warmup 1"));
  EXPECT_GT(json["efficiency"], 0);
  EXPECT_LE(json["efficiency"], 1.2);  // 1 and a margin for noise
}

TEST(Bench, ListsWhatEachOpDid) {
  const auto once = small_bench({}), twice = small_bench({"--grad-accumulation", "2"});
  EXPECT_GE(once["kernels"].size(), 10u);
  double shares = 0;
  for (const auto& kernel : once["kernels"]) {
    shares += kernel["share"].get<double>();
    EXPECT_GE(kernel["gflops"], 0) << kernel;
    EXPECT_GT(kernel["gbytes_per_second"], 0) << kernel;
  }
  EXPECT_NEAR(shares, 1, 1e-12);
  // Each of nano's four blocks has four linear layers; the head is one more.
  const auto calls = [](const auto& json, const std::string& name) {
    for (const auto& kernel : json["kernels"]) {
      if (kernel["name"] == name) return kernel["calls"].template get<int>();
    }
    return 0;
  };
  EXPECT_EQ(calls(once, "linear_backward"), 4 * 3 + 1);
  EXPECT_EQ(calls(twice, "linear_backward"), 2 * (4 * 3 + 1));
  EXPECT_EQ(calls(twice, "adamw"), 1);
  EXPECT_NEAR(twice["tokens_per_second"].get<double>() * twice["ms_per_step"]["median"].get<double>() / 1e3,
              2 * 2 * 16, 1e-9);
}

TEST(Bench, PrintsATableForPeople) {
  const ProgramResult result =
      run_program("stage0_bench", words("--batch-size 2 --seq-len 16 --steps 2 --warmup 0"), ".");
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  for (const char* what : {"tokens/s", "quartiles", "efficiency", "6N+12LCT", "6N+6LCT", "measured GEMM",
                           "MiB", "backward", "attention_forward", "GFLOP/s", "GB/s"}) {
    EXPECT_NE(result.output.find(what), std::string::npos) << what << '\n' << result.output;
  }
}

TEST(Output, ThatIsLostIsAFailure) {
  const std::string verify =
      std::string(STAGEGPT_BIN_DIR "/stage0_verify --model ") + kTiny + " --state " + kTinyState;
  for (const auto& [output, why] : {std::pair{" >/dev/full", "standard output cannot be written"},
                                    {" >&-", "standard output is closed: the result would be lost"}}) {
    const ProgramResult result = run_program("/bin/sh", {"-c", verify + output}, ".");
    EXPECT_EQ(result.exit_code, 1) << output;
    expect_said(result, why);
  }
}

TEST(Help, ListsTheFlags) {
  for (const char* program : {"stage0_train", "stage0_verify", "stage0_bench", "prepare_data"}) {
    const ProgramResult result = run_program(program, {"--help"}, ".");
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_NE(result.output.find("--threads"), std::string::npos);
    EXPECT_EQ(result.errors, "");
  }
}

}  // namespace
}  // namespace stagegpt::test
