// The flags of compare_stages, with fake stages (shell scripts).
#include <gtest/gtest.h>

#include "common/base/json.h"
#include "tests/compare/fake_stages.h"
#include "tools/compare/provenance.h"

namespace stagegpt::compare::test {
namespace {

using Arguments = std::vector<std::string>;
using stagegpt::test::ProgramResult;
using stagegpt::test::operator+;
using stagegpt::test::words;

class CompareFlagsTest : public FakeStages {
 protected:
  CompareFlagsTest() {
    mpirun();
    for (const char* name : {"stage0_train", "stage1_train", "stage2_train", "stage2_train_emulated"})
      stage(name);
    fs::copy(fs::path(STAGEGPT_BIN_DIR) / "compare_stages", folder());
  }

  // Runs the copy of compare_stages in the scripts' folder: it looks for the stages in its own folder.
  ProgramResult run(const Arguments& arguments, const stagegpt::test::RunOptions& options = {}) const {
    return stagegpt::test::run_program(folder() / "compare_stages", arguments, folder(), options);
  }
  Json results() const {
    return Json::parse(stagegpt::test::read_bytes(folder() / "report" / "results.json"));
  }
  Arguments labels() const {
    Arguments all;
    const Json json = results();
    for (const Json& one : json["contestants"]) all.push_back(one["label"]);
    return all;
  }
  std::string refused(const Arguments& arguments) const {
    const ProgramResult result = run(Arguments{"--output", "report"} + arguments);
    EXPECT_EQ(result.exit_code, 2);
    return result.errors;
  }
};

TEST_F(CompareFlagsTest, HaveDefaults) {
  metrics("stage1_train", {4, 3, 2 + 1.5e-5});  // within the default limits
  metrics("stage2_train", {4, 3, 2 + 3e-5});
  const ProgramResult result = run({"--output", "report"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_TRUE(result.output.starts_with(
      "Stage 2 disagrees with Stage 0 from step 3 on: loss 2.00003 instead of 2, a"))
      << result.output;
  EXPECT_TRUE(result.errors.ends_with("report: report/index.html\n")) << result.errors;
  const Json json = results();
  EXPECT_EQ(json["title"], "The stages of StageGPT, compared");
  EXPECT_TRUE(json["author"].is_null());
  EXPECT_EQ(json["command"], Json({(folder() / "compare_stages").string(), "--output", "report"}));
  EXPECT_EQ(labels(),
            (Arguments{"Stage 0", "Stage 1, 1 rank", "Stage 1, 2 ranks", "Stage 2", "Stage 0, reproducible",
                       "Stage 1, 2 ranks, reproducible", "Stage 2, reproducible"}));
  Json experiment = json["experiment"];
  experiment.erase("settings");
  EXPECT_EQ(experiment.dump(),
            concat(R"({"mode":"same cores","cores":)", usable_cores(),
                   R"(,"ranks":[1,2],"tensor_parallel":[1],"pipeline_parallel":[1],)",
                   R"("repeats":3,"warmup":3,"reproducible":false,)",
                   R"("limits":{"loss":1e-05,"grad_norm":0.0001},"model":"a model of stage0_train",)",
                   R"("data":"some text, 9 tokens"})"));
  EXPECT_EQ(json["contestants"][0]["trials"].size(), 3u);
}

TEST_F(CompareFlagsTest, LimitsAreThoseOfThePrecision) {
  for (const char* name : {"stage0_train", "stage1_train"})
    stage(name, {.help = FakeProgram{}.help + "; echo '  --precision P'"});
  metrics("stage1_train", {4, 3, 2 * (1 + 7e-3)});
  const Arguments flags = words("--output report --stages 0,1 --repeats 1 --no-reproducible-pass");
  for (const auto& [precision, code] : {std::pair{"f32", 1}, {"tf32", 1}, {"bf16", 0}}) {
    const ProgramResult result = run(flags + Arguments{"--overwrite", "--", "--precision", precision});
    EXPECT_EQ(result.exit_code, code) << precision << result.errors << result.output;
  }
  const Json json = results();
  EXPECT_EQ(json["experiment"]["limits"].dump(), R"({"loss":0.008,"grad_norm":0.08})");
}

TEST_F(CompareFlagsTest, SetTheExperiment) {
  directory_.write("settings.json", R"({"steps": 3, "n_layer": 5})");
  const Arguments flags =
      Arguments{"--title",    "A title",  "--author",
                "An author",  "--mpirun", (folder() / "mpirun").string() + " --fast",
                "--programs", folder()} +
      words(
          "--output report --stages 1,0 --ranks 4,1 --cores 8 --repeats 1 --warmup 2 --loss-limit 0.5 "
          "--norm-limit 0.25 --scaling strong --reproducible --config settings.json --json -- --steps 7");
  const ProgramResult result = expect_done(run(flags));
  const Json json = Json::parse(result.output);
  EXPECT_EQ(json, results());
  EXPECT_EQ(json["title"], "A title");
  EXPECT_EQ(json["author"], "An author");
  Json experiment = json["experiment"];
  experiment.erase("settings");
  EXPECT_EQ(experiment.dump(), R"({"mode":"strong","cores":8,"ranks":[1,4],"tensor_parallel":[1],)"
                               R"("pipeline_parallel":[1],"repeats":1,"warmup":2,)"
                               R"("reproducible":true,"limits":{"loss":0.5,"grad_norm":0.25},)"
                               R"("model":"a model of stage0_train","data":"some text, 9 tokens"})");
  EXPECT_EQ(labels(), (Arguments{"Stage 0, reproducible", "Stage 1, 1 rank, reproducible",
                                 "Stage 1, 4 ranks, reproducible"}));
  const Arguments command = json["contestants"][2]["command"];
  EXPECT_EQ(command,
            Arguments{folder() / "mpirun"} + words("--fast -np 4") + Arguments{folder() / "stage1_train"} +
                words("--data data/dummy.txt --tokenizer char --n-layer 5 --n-head 2 --n-embd 64 "
                      "--block-size 32 --batch-size 8 --steps 7 --eval-every 1000000000 --checkpoint-every "
                      "1000000000 --val-fraction 0 --sample-every 0 --max-new-tokens 0 --threads 2 "
                      "--reproducible --run-dir report/runs/stage1-4-ranks-batch-8-reproducible-1"));
}

TEST_F(CompareFlagsTest, ChooseTheContestants) {
  const Arguments flags = words("--output report --overwrite --repeats 1");
  EXPECT_EQ(run(flags + Arguments{"--stages", "2", "--emulated"}).exit_code, 0);
  EXPECT_EQ(labels(), (Arguments{"Stage 2, emulated", "Stage 2, emulated, reproducible"}));
  EXPECT_EQ(run(flags + Arguments{"--stages", "2", "--no-reproducible-pass"}).exit_code, 0);
  EXPECT_EQ(labels(), (Arguments{"Stage 2"}));
  EXPECT_EQ(run(flags + Arguments{"--stages", "1", "--scaling", "weak"}).exit_code, 0);
  EXPECT_EQ(labels(), (Arguments{"Stage 1, 1 rank, batch 8", "Stage 1, 2 ranks, batch 16"}));
  fs::create_directory(folder() / "other");
  stage("other/stage0_train");
  EXPECT_EQ(run(flags + words("--stages 0 --no-reproducible-pass --against other")).exit_code, 0);
  EXPECT_EQ(labels(), (Arguments{"Stage 0, other build", "Stage 0"}));
}

TEST_F(CompareFlagsTest, LeaveOutTheTimelines) {
  const Arguments once = words("--output report --overwrite --stages 0 --repeats 1 --no-reproducible-pass");
  const auto timeline = [&] { return results()["contestants"][0]["timeline"]; };
  EXPECT_EQ(run(once).exit_code, 0);
  EXPECT_EQ(timeline()["failure"], "\"stage0_train\" has no --profile");
  EXPECT_EQ(run(once + Arguments{"--no-timelines"}).exit_code, 0);
  EXPECT_TRUE(timeline().is_null());
}

TEST_F(CompareFlagsTest, EndAContestantThatTakesTooLong) {
  stage("stage0_train", {.train = "exec sleep 60"});
  EXPECT_EQ(run(words("--output report --stages 0 --repeats 1 --no-reproducible-pass --timeout-seconds 3"))
                .exit_code,
            1);
  const std::string failure = results()["contestants"][0]["failure"];
  EXPECT_NE(failure.find("see --timeout-seconds"), std::string::npos) << failure;
}

TEST_F(CompareFlagsTest, DivideTheModel) {
  FakeProgram with_grids;
  with_grids.help += "; echo '  --tensor-parallel N'; echo '  --pipeline-parallel N'";
  stage("stage1_train", with_grids);
  ASSERT_EQ(run(words("--output report --repeats 1 --stages 0,1 --no-reproducible-pass --ranks 4 "
                      "--tensor-parallel 1,2 --pipeline-parallel 2"))
                .exit_code,
            0);
  EXPECT_EQ(labels(),
            (Arguments{"Stage 0", "Stage 1, 4 ranks, pipeline 2", "Stage 1, 4 ranks, tensor 2, pipeline 2"}));
  const Json contestant = results()["contestants"][2];
  const std::string command = contestant["command"].dump();
  EXPECT_NE(command.find(R"("--tensor-parallel","2","--pipeline-parallel","2")"), std::string::npos)
      << command;
  EXPECT_EQ(contestant["tensor_parallel"], 2);
  EXPECT_EQ(contestant["pipeline_parallel"], 2);
  // A grid that cannot start was asked for.
  with_grids.dry_run =
      "case \"$*\" in *--tensor-parallel*) echo 'stage1_train: no heads' >&2; exit 2;; esac; " +
      with_grids.dry_run;
  stage("stage1_train", with_grids);
  fs::remove_all(folder() / "report");
  EXPECT_EQ(refused({"--stages", "0,1", "--tensor-parallel", "2"}), "compare_stages: no heads\n");
}

TEST_F(CompareFlagsTest, DivideAModelThatIsTraced) {
  FakeProgram with_grids;
  with_grids.help += "; echo '  --tensor-parallel N'";
  stage("stage1_train", with_grids);
  metrics("stage1_train", {4, 3, 1});
  const ProgramResult result = run(
      words("--output report --repeats 1 --stages 0,1 --ranks 2 --tensor-parallel 2 --no-reproducible-pass"));
  EXPECT_EQ(result.exit_code, 1);
  const std::string calls = stagegpt::test::read_bytes(folder() / "calls");
  EXPECT_NE(calls.find("--tensor-parallel 2 --run-dir report/runs/stage1-2-ranks-tensor-2-batch-8-traced "
                       "--trace-steps 3 --stop-after 3\n"),
            std::string::npos)
      << calls;
}

TEST_F(CompareFlagsTest, AreRefused) {
  EXPECT_EQ(run({}).errors, "compare_stages: --output: expected a directory to create\n");
  EXPECT_EQ(
      run({}, {.environment = {{"OMPI_COMM_WORLD_SIZE", "2"}}}).errors,
      "compare_stages: expected to be started once, without mpirun: by OMPI_COMM_WORLD_SIZE there are 2 "
      "processes, which would all write the same files\n");
  EXPECT_EQ(refused({"--stages", "0,4"}),
            "compare_stages: --stages: expected a whole number from 0 to 3, not '4'\n");
  EXPECT_EQ(refused({"--ranks", "0"}),
            "compare_stages: --ranks: expected a whole number from 1 to 65536, not '0'\n");
  EXPECT_EQ(refused({"--ranks", "3"}),
            "compare_stages: --batch-size: 8 is not divisible by the number of ranks, 3; use 6 or 9\n");
  EXPECT_EQ(
      refused({"--tensor-parallel", "4"}),
      "compare_stages: --tensor-parallel: no number of --ranks can be divided into groups of 4 with one "
      "model\n");
  directory_.write("settings.json", "[1]");
  EXPECT_EQ(refused({"--config", "settings.json"}),
            "compare_stages: --config: \"settings.json\": expected a JSON object\n");
  EXPECT_EQ(run(words("--output report --stages 0 --repeats 1 --no-reproducible-pass")).exit_code, 0);
  EXPECT_EQ(refused({"--stages", "0"}),
            "compare_stages: --output: \"report\" contains a comparison; --overwrite replaces it\n");
}

}  // namespace
}  // namespace stagegpt::compare::test
