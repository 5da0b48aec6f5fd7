// The output of the programs, line by line, except for times and rounding.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/support/patterns.h"
#include "tests/support/program.h"

namespace stagegpt::test {
namespace {

using Arguments = std::vector<std::string>;
// Replaces numbers with a fraction, times, speeds and the machine's name by "#".
std::string masked(std::string text) {
  for (const auto& [pattern, by] : {std::pair{R"([0-9][0-9,]*\.[0-9]+(e[-+][0-9]+)?)", "#"},
                                    {"[0-9,]+ tok/s", "# tok/s"},
                                    {"ETA [0-9:]+", "ETA #"},
                                    {"(trained|validated) in [0-9]+ s", "$1 in # s"},
                                    {"machine: [^\n]*", "machine: #"}}) {
    text = replace_matches(text, pattern, by);
  }
  return text;
}

// Runs of a model with (9 + 8) · 8 + 12 · 8² + 13 · 8 + 2 · 8 parameters, on a text of 400 characters. The
// vocabulary has eight letters and the end of text.
class ProgramText : public testing::Test {
 protected:
  ProgramText() {
    std::string text;
    for (int i = 0; i < 50; ++i) text += "abcdefgh";
    directory_.write("text.txt", text);
  }
  ProgramResult run(const std::string& program, const Arguments& arguments, int exit_code = 0) const {
    ProgramResult result = run_program(program, arguments, directory_.path());
    EXPECT_EQ(result.exit_code, exit_code) << result.errors;
    return result;
  }
  ProgramResult train(const Arguments& more) const {
    return run("stage0_train", words("--data text.txt --tokenizer char --n-layer 1 --n-head 1 --n-embd 8 "
                                     "--block-size 8 --batch-size 2 --threads 1 --run-dir run") +
                                   more);
  }

  ScratchDirectory directory_;
};

const std::string kModel =
    "nano with n_layer 1, n_head 1, n_embd 8, block_size 8: 1,024 parameters, 1 layer, 1 head, 8 channels, "
    "context 8\n";
const std::string kData = "data: text.txt, 300 tokens for training, vocabulary 9 (char)\n";
const std::string kAll = "validation: all 96 tokens, in 12 windows of 8\n";

TEST_F(ProgramText, OfATrainingIsThis) {
  const ProgramResult first = train(words("--steps 4 --stop-after 3 --val-fraction 0.25 --max-new-tokens 4"));
  EXPECT_EQ(
      masked(first.errors),
      kModel + kData + kAll +
          "machine: #\nrun: run\n"
          "step 1/4  loss #  lr #  norm #  # tok/s  ETA #\n"
          "step 2/4  loss #  lr #  norm #  # tok/s  ETA #\n"
          "step 3/4  loss #  lr #  norm #  # tok/s  ETA #\n"
          "checkpoint: run/checkpoints/step_00000003 (# MB, # s)\n"
          "trained in # s, validated in # s: validation loss # nats per token, # bits per byte, of all 96 "
          "tokens\nmodel: run/latest\n"
          "stopped after step 3 of 4 (--stop-after); continue with --resume run\n");
  const std::string nothing =
      "nothing is trained or saved\nvalidation loss # nats per token, # bits per byte, of all 96 "
      "tokens\nmodel: "
      "run/latest\n";
  EXPECT_EQ(
      masked(train({"--resume", "--stop-after", "2"}).errors),
      kModel + kData + kAll +
          "machine: #\nrun: run has done 3 steps, --stop-after asks for 2; to continue it, give a later "
          "step, or leave out --stop-after\n" +
          nothing);
  EXPECT_EQ(masked(train({"--resume"}).errors),
            kModel + kData + kAll +
                "machine: #\nrun: run, resumed from \"step_00000003\"\n"
                "step 4/4  loss #  val #  lr #  norm #  # tok/s  ETA #\n"
                "checkpoint: run/checkpoints/step_00000004 (# MB, # s)\n"
                "trained in # s, validated in # s: validation loss # nats per token, # bits per byte, of all "
                "96 tokens\nmodel: "
                "run/latest\n");
  EXPECT_EQ(masked(train({"--resume"}).errors), kModel + kData + kAll +
                                                    "machine: #\nrun: run has done all steps of --steps, 4"
                                                    "; to continue it, give more, such as --resume "
                                                    "run --steps 8\n" +
                                                    nothing);
}

TEST_F(ProgramText, OfMoreThreadsThanCoresIsAWarning) {
  const std::string threads = std::to_string(std::thread::hardware_concurrency() + 1);
  expect_said(train({"--dry-run", "--threads", threads}), "warning: " + threads + " threads share ");
}

TEST_F(ProgramText, OfATrainingSaysWhichTokensAreValidated) {
  const ProgramResult some = train(words("--val-fraction 0.25 --eval-tokens 16 --dry-run"));
  EXPECT_EQ(
      masked(some.errors),
      kModel + kData + "validation: 16 of 96 tokens, in 2 of 12 windows of 8, spread evenly\nmachine: #\n");
  EXPECT_TRUE(some.output.starts_with("parameters  1,024\n")) << some.output;
  const ProgramResult one = train({"--val-fraction", "0.03", "--dry-run"});  // 12 characters
  expect_said(one, "\nvalidation: all 8 tokens, in 1 window of 8\n");
  const ProgramResult none = train(words("--val-fraction 0 --steps 1 --max-new-tokens 0"));
  EXPECT_EQ(masked(none.errors), kModel +
                                     "data: text.txt, 400 tokens for training, vocabulary 9 (char)\n"
                                     "no validation (--val-fraction 0)\nmachine: #\nrun: run\n"
                                     "step 1/1  loss #  lr #  norm #  # tok/s  ETA #\n"
                                     "checkpoint: run/checkpoints/step_00000001 (# MB, # s)\n"
                                     "trained in # s: no validation (--val-fraction 0)\nmodel: run/latest\n");
  EXPECT_EQ(none.output, "");
}

TEST_F(ProgramText, OfADryRunHasTheTimeAtTheMeasuredPeak) {
  const Arguments flags = words("--val-fraction 0.25 --steps 50 --dry-run");
  const nlohmann::json plan = nlohmann::json::parse(train(flags + Arguments{"--json"}).output);
  EXPECT_EQ(plan["tokens_per_step"], 16);
  EXPECT_DOUBLE_EQ(plan["total_flops"], 50 * 16 * plan["flops_per_token"].get<double>());
  EXPECT_GT(plan["peak_flops_per_second"], 1e7);
  EXPECT_DOUBLE_EQ(plan["seconds_at_peak"].get<double>() * plan["peak_flops_per_second"].get<double>(),
                   plan["total_flops"]);
}

TEST_F(ProgramText, OfATrainingSaysHowManyParametersAreTrained) {
  const ProgramResult result = train({"--freeze", "wte*,wpe*,h.0.mlp.*", "--dry-run"});
  // 3 · 8² + 3 · 8 + 8² + 8 of attention, and three layernorms
  EXPECT_TRUE(
      result.errors.starts_with("nano with n_layer 1, n_head 1, n_embd 8, block_size 8: 1,024 parameters, "
                                "336 of them trained, 1 layer, "))
      << result.errors;
  EXPECT_TRUE(result.output.starts_with("parameters  1,024, 336 of them trained\n")) << result.output;
}

// A preset's name is taken for its trained weights by some.
TEST_F(ProgramText, OfATrainingSaysWhereTrainedWeightsAre) {
  const auto header = [&](const std::string& model) { return train({"--model", model, "--dry-run"}).errors; };
  const std::string sizes =
      "8 channels, context 8\nweights: random; for trained ones: ./scripts/download_gpt2.sh";
  EXPECT_NE(header("gpt2").find(sizes + ", then --model data/gpt2\ndata: "), std::string::npos);
  EXPECT_NE(header("gpt2-medium").find(sizes + " --model gpt2-medium, then --model data/gpt2-medium\ndata: "),
            std::string::npos);
  EXPECT_EQ(header("nano").find("weights: "), std::string::npos);
}

TEST_F(ProgramText, OfATrainingAsJsonHasTheSame) {
  const Arguments flags = words("--steps 3 --val-fraction 0.25 --max-new-tokens 4");
  const nlohmann::json json = nlohmann::json::parse(train(flags + Arguments{"--json"}).output);
  std::string keys;
  for (const auto& [key, value] : json.items()) keys += key + ' ';
  EXPECT_EQ(
      keys,
      "bits_per_byte loss model parameters run_dir sample seconds steps stopped_early task tokens_per_second "
      "trained_parameters training_seconds validation_accuracy validation_loss validation_seconds "
      "validation_tokens validation_windows validation_windows_all ");
  EXPECT_EQ(json["model"], "nano with n_layer 1, n_head 1, n_embd 8, block_size 8");
  EXPECT_EQ(json["parameters"], 1024);
  EXPECT_EQ(json["trained_parameters"], 1024);
  EXPECT_EQ(json["run_dir"], "run");
  EXPECT_EQ(json["steps"], 3);
  EXPECT_EQ(json["validation_tokens"], 96);
  EXPECT_NEAR(json["bits_per_byte"].get<double>() * std::log(2.0), json["validation_loss"].get<double>(),
              1e-9);
  const std::string metrics = read_bytes(directory_.path() / "run" / "metrics.jsonl");
  std::istringstream lines(metrics);
  nlohmann::json last;
  for (std::string line; std::getline(lines, line);) {
    if (nlohmann::json one = nlohmann::json::parse(line); one.contains("loss")) last = one;
  }
  EXPECT_EQ(json["loss"], last["loss"]) << metrics;
  EXPECT_EQ(json["validation_loss"], last["validation_loss"]) << metrics;
  std::filesystem::remove_all(directory_.path() / "run");
  EXPECT_EQ(train(flags).output, json["sample"].get<std::string>() + '\n');
}

TEST_F(ProgramText, OfPreparedDataIsThis) {
  EXPECT_EQ(
      run("prepare_data",
          words("--input text.txt --output out --tokenizer char --shard-tokens 200 --val-fraction 0.25"))
          .output,
      "out: char, vocabulary 9\n"
      "train  2 files  300 tokens  1.00 bytes per token\n"
      "val    1 file  100 tokens  1.00 bytes per token\n");
  EXPECT_EQ(
      run("prepare_data", words("--input text.txt --output all --tokenizer char --val-fraction 0")).output,
      "all: char, vocabulary 9\n"
      "train  1 file  400 tokens  1.00 bytes per token\n"
      "val    0 files  0 tokens  0.00 bytes per token\n");
}

TEST_F(ProgramText, OfPreparedDataAsJsonSaysWhatItIsMadeOf) {
  directory_.write("more.txt", "abc");
  const nlohmann::json json = nlohmann::json::parse(
      run("prepare_data",
          words("--input text.txt --input more.txt --output out --tokenizer char --val-fraction 0.25 --json"))
          .output);
  EXPECT_EQ(json["inputs"].dump(),
            R"([{"bytes":400,"documents":1,"path":"text.txt"},{"bytes":3,"documents":1,"path":"more.txt"}])");
  EXPECT_EQ(json["special_tokens"], "as text");
  EXPECT_EQ(json["val_fraction"], 0.25);
  EXPECT_EQ(json["tokenizer"]["kind"], "char");
  EXPECT_EQ(json["tokenizer"]["vocab_size"], 9);
  EXPECT_EQ(json["train"]["text_bytes"].get<int>() + json["val"]["text_bytes"].get<int>(), 403);
}

const std::string kOne = STAGEGPT_SOURCE_DIR "/tests/golden/one.bin";
const std::string kOneState = STAGEGPT_SOURCE_DIR "/tests/golden/one_debug_state.bin";

// The number of parameters is (37 + 7) · 20 + 12 · 20² + 13 · 20 + 2 · 20 = 5,980.
TEST_F(ProgramText, OfAConversionIsThis) {
  const ProgramResult result = run("convert_checkpoint", {"--input", kOne, "--output", "one/"});
  EXPECT_EQ(result.output, "one: 5,980 parameters, vocabulary 37, context 7\n");
  EXPECT_EQ(result.errors, "note: the directory gets no tokenizer; --tokenizer-path adds one\n");
}

TEST_F(ProgramText, OfAProgramOfOneProcessUnderMpirunIsARefusal) {
  for (const std::string program : {"prepare_data", "convert_checkpoint"}) {
    for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
      const auto started = [&](const char* size) {
        return run_program(program, {"--help"}, directory_.path(), {.environment = {{variable, size}}});
      };
      EXPECT_EQ(started("2").errors,
                concat(program, ": expected to be started once, without mpirun: by ", variable,
                       " there are 2 processes, which would all write the same files\n"));
      EXPECT_EQ(started("2").exit_code, 2);
      EXPECT_EQ(started("1").exit_code, 0) << variable;
    }
  }
}

// The table of a verification contains the values of its JSON object.
TEST_F(ProgramText, OfAVerificationIsItsJson) {
  const Arguments flags = {"--model", kOne, "--state", kOneState, "--steps", "2", "--threads", "1"};
  const nlohmann::json json = nlohmann::json::parse(run("stage0_verify", flags + Arguments{"--json"}).output);
  std::string table = "tensor                       shape                   error      limit\n";
  const auto add = [&](const std::string& name, const std::string& shape, double error, const char* limit) {
    char row[120];
    std::snprintf(row, sizeof row, "%-28s %-18s %10.2e      %s  ok\n", name.c_str(), shape.c_str(), error,
                  limit);
    table += row;
  };
  add("logits", "(1, 5, 37)", json["logits_error"], "2e-05");
  add("loss", "(1)", json["loss_error"], "1e-05");
  for (const nlohmann::json& tensor : json["tensors"]) {
    std::string shape;
    for (const std::int64_t n : tensor["shape"]) shape += (shape.empty() ? "(" : ", ") + std::to_string(n);
    add(tensor["name"], shape + ')', tensor["error"], "1e-04");
    EXPECT_EQ(tensor["limit"], 1e-4);
    EXPECT_TRUE(tensor["ok"]);
  }
  for (std::size_t i = 0; i < json["losses"].size(); ++i) {
    char line[60];
    std::snprintf(line, sizeof line, "step %3zu  loss %.6f\n", i, json["losses"][i].get<double>());
    table += line;
  }
  EXPECT_EQ(json["losses"].size(), 2u);
  EXPECT_EQ(json["tensors"].size(), 16u);
  EXPECT_TRUE(json["passed"]);
  EXPECT_EQ(run("stage0_verify", flags).output, table + "passed\n");
}

TEST_F(ProgramText, OfWritingEndsWithItsSpeed) {
  train({"--steps", "1", "--max-new-tokens", "0"});
  const Arguments flags = words("--model run --threads 1 --prompt abc --max-new-tokens 1");
  const ProgramResult result = run("stage0_generate", flags + Arguments{"--num-samples", "3"});
  EXPECT_TRUE(matches(result.output, "abc.*\n---\nabc.*\n---\nabc.*\n")) << result.output;
  EXPECT_EQ(masked(result.errors), "3 tokens of 3 texts at a time: first after # ms\n");
  // For a text of one token, the time per token is the time to the first token.
  const nlohmann::json json =
      nlohmann::json::parse(run("stage0_generate", flags + Arguments{"--json"}).output);
  EXPECT_EQ(json["prompt"], "abc");
  EXPECT_EQ(json["tokens"], 1);
  EXPECT_EQ(json["ms_per_token"], json["ms_to_first_token"]);
  EXPECT_EQ(json["samples"].size(), 1u);
}

// Flags that are not given have the defaults listed by --help.
TEST_F(ProgramText, OfABenchmarkHasItsDefaults) {
  const Arguments model =
      words("--n-layer 1 --n-head 1 --n-embd 8 --block-size 16 --vocab-size 100 --threads 1");
  const std::string name = "nano with n_layer 1, n_head 1, n_embd 8, block_size 16, 1,816 parameters, ";
  const std::string step = run("stage0_bench", model).output;
  EXPECT_TRUE(step.starts_with(name + "64 tokens a step in sequences of 16\nCPU, 1 thread, ")) << step;
  EXPECT_NE(step.find(" ms   median of 10; quartiles "), std::string::npos) << step;
  EXPECT_EQ(step.find(", reproducible\n"), std::string::npos) << step;
  const std::string fixed =
      run("stage0_bench", model + words("--reproducible --batch-size 8 --steps 1")).output;
  EXPECT_NE(fixed.find(", reproducible\n"), std::string::npos) << fixed;
  const std::string token = run("stage0_bench", model + Arguments{"--generate"}).output;
  EXPECT_TRUE(token.starts_with(name + "matrices in f32\nCPU, 1 thread, ")) << token;
  EXPECT_NE(token.find(" ms (median of 64; "), std::string::npos) << token;
  const nlohmann::json json = nlohmann::json::parse(
      run("stage0_bench", model + words("--json --batch-size 6 --grad-accumulation 2 --steps 1")).output);
  EXPECT_EQ(json["batch_size"], 6);
  EXPECT_EQ(json["seq_len"], 16);
  EXPECT_EQ(json["ranks"], 1);
  EXPECT_EQ(json["threads"], 1);
  EXPECT_EQ(json["parameters"], 1816);
  EXPECT_NEAR(json["tokens_per_second"].get<double>() * json["ms_per_step"]["median"].get<double>(), 192e3,
              1e-3);
  const nlohmann::json written = nlohmann::json::parse(
      run("stage0_bench", model + words("--json --generate --weights bf16 --steps 1")).output);
  EXPECT_EQ(written["weights"], "bf16");
  EXPECT_EQ(written["threads"], 1);
  EXPECT_EQ(written["parameters"], 1816);
}

}  // namespace
}  // namespace stagegpt::test
