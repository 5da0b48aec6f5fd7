// Stage 1's programs as a user runs them, beside stage 0's.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/mpi_program.h"

namespace stagegpt::test {
namespace {

using Arguments = std::vector<std::string>;

class Stage1 : public testing::Test {
 protected:
  void SetUp() override {
    std::string text;
    for (int i = 0; i < 200; ++i) text += "the cat sat on the mats.\n";
    directory_.write("t.txt", text);
  }

  static Arguments small(const std::string& run, const Arguments& more = {}) {
    return with_flags(
        Arguments{"--data",       "t.txt", "--tokenizer",  "char", "--n-layer",    "1",   "--n-head",  "2",
                  "--n-embd",     "16",    "--block-size", "16",   "--batch-size", "24",  "--steps",   "30",
                  "--eval-every", "10",    "--threads",    "1",    "--dropout",    "0.1", "--run-dir", run},
        more);
  }
  ProgramResult stage0(const std::string& job, const Arguments& arguments) const {
    return expect_done(run_program("stage0_" + job, arguments, directory_.path()));
  }
  ProgramResult stage1(int ranks, const std::string& job, const Arguments& arguments) const {
    return expect_done(run_mpi(ranks_of(ranks, "stage1_" + job) + arguments, directory_.path()));
  }
  // Of the whole checkpoint.
  std::string hash_after(int steps, const std::string& run) const {
    char name[32];
    std::snprintf(name, sizeof name, "step_%08d", steps);
    const auto path = directory_.path() / run / "checkpoints" / name / "manifest.json";
    return nlohmann::json::parse(read_bytes(path))["xxh3_128"];
  }
  // A field of all lines of metrics.jsonl that have it.
  std::vector<double> metric(const std::string& run, const char* field) const {
    std::istringstream lines(read_bytes(directory_.path() / run / "metrics.jsonl"));
    std::vector<double> values;
    for (std::string line; std::getline(lines, line);) {
      const auto json = nlohmann::json::parse(line);
      if (json.contains(field)) values.push_back(json[field]);
    }
    return values;
  }
  void expect_same_curves(const std::string& run, const std::string& other) const {
    for (const char* field : {"loss", "grad_norm", "validation_loss"}) {
      const std::vector<double> a = metric(run, field), b = metric(other, field);
      ASSERT_EQ(a.size(), b.size()) << field;
      ASSERT_FALSE(a.empty()) << field;
      for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i] / b[i], 1, 1e-4) << field << ' ' << i;
    }
  }

  ScratchDirectory directory_;

 private:
  static ProgramResult expect_done(ProgramResult result) {
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    return result;
  }
};

TEST_F(Stage1, ReproducibleRunsEndInTheSameBits) {
  // Large enough for the matrix library to divide a product among threads.
  const Arguments wide = {"--n-embd",     "128", "--n-layer",     "2", "--block-size", "64",
                          "--stop-after", "4",   "--reproducible"};
  stage0("train", with_flags(small("serial", wide), {"--threads", "3"}));
  for (const int ranks : {1, 2, 4, 8}) {
    const std::string run = "ranks" + std::to_string(ranks);
    stage1(ranks, "train", small(run, wide));
    EXPECT_EQ(hash_after(4, run), hash_after(4, "serial")) << ranks << " ranks";
    EXPECT_EQ(metric(run, "loss"), metric("serial", "loss"));
    EXPECT_EQ(metric(run, "validation_loss"), metric("serial", "validation_loss"));
  }
}

TEST_F(Stage1, AReproducibleRunGoesOnAtOtherNumbersOfRanks) {
  stage1(2, "train", small("uninterrupted", {"--reproducible"}));
  stage1(2, "train", small("moved", {"--reproducible", "--stop-after", "10"}));
  stage0("train", {"--resume", "moved", "--stop-after", "20"});
  stage1(4, "train", {"--resume", "moved", "--stop-after", "30"});
  EXPECT_EQ(hash_after(30, "moved"), hash_after(30, "uninterrupted"));
}

TEST_F(Stage1, ARunWithDividedMomentsGoesOnAtOtherNumbersOfRanks) {
  stage0("train", small("serial"));
  stage1(3, "train", small("moved", {"--comm", "zero1", "--stop-after", "10"}));
  stage1(2, "train", {"--resume", "moved", "--stop-after", "20"});
  stage0("train", {"--resume", "moved", "--stop-after", "30"});
  expect_same_curves("moved", "serial");
}

TEST_F(Stage1, EveryRungTrainsAsStage0) {
  stage0("train", small("serial", {"--grad-accumulation", "2"}));
  for (const char* comm : {"per-tensor", "flat", "bucketed", "overlapped", "zero1"}) {
    stage1(2, "train", small(comm, {"--grad-accumulation", "2", "--comm", comm}));
    expect_same_curves(comm, "serial");
  }
}

TEST_F(Stage1, WritesAsStage0) {
  stage0("train", small("run"));
  const Arguments text = {"--model",          "run", "--prompt",      "the",
                          "--max-new-tokens", "40",  "--temperature", "0.9"};
  const std::string expected = stage0("generate", text).output;
  for (const int ranks : {1, 2, 3}) EXPECT_EQ(stage1(ranks, "generate", text).output, expected);
}

TEST_F(Stage1, Verifies) {
  const ProgramResult result = stage1(2, "verify",
                                      {"--model", STAGEGPT_SOURCE_DIR "/tests/golden/tiny.bin", "--state",
                                       STAGEGPT_SOURCE_DIR "/tests/golden/tiny_debug_state.bin", "--json"});
  EXPECT_TRUE(nlohmann::json::parse(result.output)["passed"]);  // printed once
}

TEST_F(Stage1, MetricsTellOfRanks) {
  stage1(2, "train", small("run", {"--comm", "flat"}));
  std::istringstream lines(read_bytes(directory_.path() / "run" / "metrics.jsonl"));
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const auto json = nlohmann::json::parse(line);
    const auto& ranks = json["ranks"];
    EXPECT_EQ(ranks["size"], 2);
    EXPECT_GT(ranks["quickest_ms"], 0);
    EXPECT_GE(ranks["slowest_ms"], ranks["quickest_ms"]);
    EXPECT_GT(ranks["reduction_ms"], 0);
    EXPECT_LE(ranks["reduction_ms"], json["ms"]["communication"]);  // nothing else is done meanwhile
    EXPECT_GE(json["bytes_reduced"].get<double>(), 4 * 3776);       // the parameters, and padding
  }
  EXPECT_EQ(count, 30);
}

TEST_F(Stage1, BenchTellsRanksAndCommunication) {
  const ProgramResult result = stage1(
      2, "bench",
      {"--n-layer", "1", "--n-embd", "32", "--steps", "2", "--warmup", "1", "--threads", "1", "--json"});
  const auto json = nlohmann::json::parse(result.output);
  EXPECT_EQ(json["ranks"], 2);
  EXPECT_GT(json["phases_ms"]["communication"], 0);
}

TEST_F(Stage1, HelpComesOnce) {
  const std::string help = stage1(2, "train", {"--help"}).output;
  const std::size_t first = help.find("--comm-algorithm");
  ASSERT_NE(first, std::string::npos);
  EXPECT_EQ(help.find("--comm-algorithm", first + 1), std::string::npos);
}

}  // namespace
}  // namespace stagegpt::test
