// compare_stages as a user runs it, with the stages that are built.
#include <gtest/gtest.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "tests/support/patterns.h"
#include "tests/support/program.h"
#include "tests/support/trace.h"

namespace stagegpt::test {
namespace {

namespace fs = std::filesystem;
using Arguments = std::vector<std::string>;

// The arguments after "--": a model so small that even the emulator takes less than a second for its steps.
const Arguments kTiny =
    words("-- --n-layer 1 --n-head 1 --n-embd 16 --block-size 8 --batch-size 8 --steps 4");

class CompareStages : public testing::Test {
 protected:
  ProgramResult run(Arguments arguments, RunOptions options = {}) const {
    if (!timelines_) arguments.insert(arguments.begin(), "--no-timelines");
    options.environment.emplace_back("ASAN_OPTIONS", "detect_leaks=0");  // see run_mpi()
    return run_program("compare_stages", arguments, directory_.path(), options);
  }

  nlohmann::json results() const {
    return nlohmann::json::parse(read_bytes(directory_.path() / "report" / "results.json"));
  }

  // A folder with all programs. Those in `names` are scripts that call the real program with additional
  // flags.
  std::string programs_with(const std::set<std::string>& names, const std::string& flags) const {
    const fs::path folder = directory_.path() / "programs";
    fs::create_directory(folder);
    for (const std::string program :
         {"stage0_train", "stage1_train", "stage2_train_emulated", "stage3_train_emulated"}) {
      const fs::path real = fs::path(STAGEGPT_BIN_DIR) / program;
      if (!names.contains(program)) {
        fs::create_symlink(real, folder / program);
        continue;
      }
      directory_.write("programs/" + program,
                       "#!/bin/sh\nexec '" + real.string() + "' \"$@\" " + flags + "\n");
      fs::permissions(folder / program, fs::perms::owner_all);
    }
    return folder;
  }

  void expect_refused(const Arguments& arguments, const std::string& message) const {
    expect_failure(run(arguments), 2, message);
    EXPECT_FALSE(fs::exists(directory_.path() / "report" / "runs")) << message;
  }

  ScratchDirectory directory_;
  bool timelines_ = false;
};

TEST_F(CompareStages, ComparesTracesOfEarlierRuns) {
  for (const auto& [name, eps] : {std::pair("a", "1e-8"), std::pair("b", "1e-8"), std::pair("c", "1e-5")}) {
    const ProgramResult trained = run_program(
        "stage0_train",
        {"--run-dir", name, "--eps", eps, "--trace-steps", "2", "--val-fraction", "0", "--n-layer", "1",
         "--n-head", "1", "--n-embd", "16", "--block-size", "8", "--steps", "2"},
        directory_.path());
    ASSERT_EQ(trained.exit_code, 0) << trained.errors;
  }
  EXPECT_EQ(run({"--traces", "a/traces", "b/traces"}).exit_code, 0);
  const ProgramResult differs = run({"--traces", "a/traces", "c/traces"});
  EXPECT_EQ(differs.exit_code, 1);
  EXPECT_TRUE(differs.output.starts_with("step 1: the weight ")) << differs.output;
  fs::remove(directory_.path() / "b/traces/step_00000002.safetensors");
  expect_refused({"--traces", "a/traces", "b/traces"}, "\"b/traces\" has no trace of step 2");
  expect_refused({"--traces", "a/traces"}, "--traces: expected two directories, got 1");
}

TEST_F(CompareStages, AllStagesAgree) {
  timelines_ = true;
  const ProgramResult result = run(words("--output report --repeats 2 --emulated") + kTiny);
  ASSERT_EQ(result.exit_code, 0) << result.errors << result.output;
  const nlohmann::json json = results();
  EXPECT_EQ(json["passed"], true);
  EXPECT_TRUE(has_match(json["experiment"]["data"], "dummy.txt, .* tokens")) << json["experiment"]["data"];
  std::set<int> stages;
  std::size_t bits = 0;
  for (const nlohmann::json& one : json["contestants"]) {
    stages.insert(one["stage"].get<int>());
    EXPECT_EQ(one["trials"].size(), one["timed"].get<bool>() ? 2u : 1u) << one["name"];
    for (const nlohmann::json& trial : one["trials"]) EXPECT_EQ(trial["loss"].size(), 4u);
  }
  EXPECT_EQ(stages.size(), 4u);
  const nlohmann::json& commit = json["provenance"]["source"]["commit"];
  EXPECT_NE(
      run({"--version"}).output.find("commit: " + (commit.is_null() ? "unknown" : commit.get<std::string>())),
      std::string::npos)
      << commit;
  for (const nlohmann::json& one : json["agreement"]) {
    EXPECT_EQ(one["passed"], true) << one;
    bits += one["kind"] == "same bits";
  }
  EXPECT_EQ(bits, 2u);  // stage 1 with stage 0, stage 3 with stage 2
  EXPECT_NE(result.output.find("agree, at every step"), std::string::npos) << result.output;
  EXPECT_NE(read_bytes(directory_.path() / "report" / "index.html").find("</html>"), std::string::npos);
  EXPECT_FALSE(fs::exists(directory_.path() / "report" / "runs" / "stage0-batch-8-1" / "checkpoints"));
  for (const nlohmann::json& one : json["contestants"]) {
    const nlohmann::json& timeline = one["timeline"];
    ASSERT_EQ(timeline.is_object(), one["timed"].get<bool>()) << one["name"];
    if (timeline.is_null()) continue;
    EXPECT_EQ(timeline["failure"], nullptr) << one["name"];
    const Trace profile = read_trace(directory_.path() / "report" / timeline["profile"].get<std::string>());
    ASSERT_EQ(profile.processes.size(), one["ranks"]) << one["name"];
    ASSERT_EQ(timeline["ranks"].size(), one["ranks"]) << one["name"];
    for (const nlohmann::json& rank : timeline["ranks"]) {
      EXPECT_GT(rank["phases_ms"]["forward"], 0) << one["name"];
      EXPECT_GT(rank["phases_ms"]["backward"], 0) << one["name"];
      EXPECT_EQ(rank["messages_ms"] > 0, one["ranks"] > 1) << one["name"];
      EXPECT_EQ(rank["rows"].contains("device"), one["stage"] >= 2) << one["name"];
    }
  }

  EXPECT_EQ(run(Arguments{"--output", "report"} + kTiny).exit_code, 2);  // a report is not overwritten
  const ProgramResult again =
      expect_done(run(words("--output report --overwrite --stages 0 --json") + kTiny));
  EXPECT_EQ(nlohmann::json::parse(again.output)["contestants"].size(), 2u);
}

// Losses and norms of a model that four ranks hold together, within the limits for rounding.
TEST_F(CompareStages, GridsAgree) {
  const ProgramResult result = run(words("--output report --emulated --stages 0,1,3 --ranks 4 --repeats 1 "
                                         "--no-reproducible-pass --tensor-parallel 2 --pipeline-parallel 2") +
                                   kTiny + words("--n-layer 2 --n-head 2 --grad-accumulation 2"));
  ASSERT_EQ(result.exit_code, 0) << result.errors << result.output;
  const nlohmann::json json = results();
  ASSERT_EQ(json["contestants"].size(), 3u);
  for (std::size_t divided = 1; divided < json["contestants"].size(); ++divided) {
    const std::string machine = json["contestants"][divided]["machine"];
    EXPECT_NE(machine.find(", 2 tensor ranks, 2 stages"), std::string::npos) << machine;
    const nlohmann::json& check = json["agreement"][divided - 1];
    EXPECT_EQ(check["name"], json["contestants"][divided]["name"]);
    EXPECT_EQ(check["steps"], 4);
    EXPECT_GT(check["grad_norm_difference"], 0);  // sums have another order: these are other runs
  }
}

TEST_F(CompareStages, NamesTheStageAndTheStepThatDisagree) {
  // The learning rate changes the results only from step 2 on: step 1 uses the same initial weights.
  const std::string programs = programs_with({"stage1_train"}, "--learning-rate 0.0031");
  const ProgramResult result = run(Arguments{"--output", "report", "--programs", programs, "--stages", "0,1",
                                             "--ranks", "2", "--repeats", "1", "--no-reproducible-pass"} +
                                   kTiny);
  EXPECT_EQ(result.exit_code, 1) << result.errors << result.output;
  EXPECT_NE(result.output.find("Stage 1, 2 ranks disagrees with Stage 0 from step 2 on"), std::string::npos)
      << result.output;
  const nlohmann::json json = results();
  EXPECT_EQ(json["passed"], false);
  EXPECT_EQ(json["agreement"][0]["disagreement"]["step"], 2);
  EXPECT_EQ(json["agreement"][0]["name"], "stage1-2-ranks-batch-8");
  // In step 1 the gradients agree, but the weights after the update do not.
  const nlohmann::json& tensor = json["agreement"][0]["disagreement"]["first_divergent_tensor"];
  EXPECT_EQ(tensor["step"], 1) << tensor;
  EXPECT_TRUE(tensor["tensor"].get<std::string>().starts_with("the weight ")) << tensor;
  EXPECT_NE(result.output.find(tensor["tensor"].get<std::string>()), std::string::npos) << result.output;
}

TEST_F(CompareStages, KeepsWhatIsDoneWhenItIsInterrupted) {
  const ProgramResult result = run(words("--output report --stages 0 --repeats 1000") + kTiny,
                                   {.signal_after = "run 2", .signals = {SIGINT}});
  EXPECT_EQ(result.exit_code, 1) << result.errors;
  const nlohmann::json json = results();
  EXPECT_EQ(json["interrupted"], true);
  EXPECT_GE(json["contestants"][0]["trials"].size(), 2u);
  EXPECT_NE(result.output.find("Interrupted"), std::string::npos) << result.output;
  for (const auto& file : fs::recursive_directory_iterator(directory_.path() / "report" / "runs")) {
    EXPECT_NE(file.path().filename(), "checkpoints") << file.path();
  }
}

TEST_F(CompareStages, RefusesWhatCannotBe) {
  expect_refused({"--output", "report", "--scaling", "sideways"}, "--scaling");
  expect_refused(words("--output report --stages 0 --config nowhere"), "--config");
  expect_refused(words("--output report --stages 0 -- --stpes 3"), "did you mean --steps");
  expect_refused(words("--output report --stages 0 -- --n-head 3"), "--n-embd");
}

}  // namespace
}  // namespace stagegpt::test
