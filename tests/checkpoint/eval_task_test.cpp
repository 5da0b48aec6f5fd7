// --eval-task: questions that a run answers with every validation.
#include "common/base/json.h"
#include "tests/checkpoint/small_run.h"

namespace stagegpt::test {
namespace {

class EvalTask : public SmallRun {
 protected:
  EvalTask() {
    directory.write("questions.jsonl",
                    R"({"context": "the cat sat on", "endings": ["the mats.", "mat"], "label": 0}
{"context": "the cat", "endings": ["the cat the", "sat on the", "a"], "label": 1}
{"context": "on the mats", "endings": ["nnn", "tea", "o"], "label": 0}
)");
  }
  static Arguments flags(const std::string& run, const Arguments& more = {}) {
    return with(
        model_flags(),
        with({"--steps", "40", "--eval-every", "15", "--learning-rate", "0.01", "--run-dir", run}, more));
  }
};

TEST_F(EvalTask, IsAnsweredAsByEvaluate) {
  const ProgramResult result = train(flags("run", {"--eval-task", "questions.jsonl", "--json"}));
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  const auto steps = metrics("run");
  for (std::size_t step = 1; step <= 40; ++step)
    EXPECT_EQ(steps[step - 1].contains("task"), step == 15 || step == 30 || step == 40) << step;
  const auto evaluated = run_program(
      "stage0_evaluate", {"--model", "run", "--task", "questions.jsonl", "--json"}, directory.path());
  ASSERT_EQ(evaluated.exit_code, 0) << evaluated.errors;
  const auto expected = nlohmann::json::parse(evaluated.output);
  const auto json = nlohmann::json::parse(result.output);
  for (const char* field : {"acc", "acc_norm", "questions"}) {
    EXPECT_EQ(json["task"][field], expected[field]);
    EXPECT_EQ(steps.back()["task"][field], expected[field]);
  }
  EXPECT_NE(expected["acc"], expected["acc_norm"]);  // or exchanging them would not be seen
  char said[96];
  std::snprintf(said, sizeof said, "after step %d: task: acc %.4f, acc_norm %.4f of 3 questions\n",
                steps.back()["step"].get<int>(), expected["acc"].get<double>(),
                expected["acc_norm"].get<double>());
  expect_said(result, said);
}

TEST_F(EvalTask, ChangesNothingElse) {
  expect_success(flags("plain"));
  expect_success(flags("asked", {"--eval-task", "questions.jsonl"}));
  EXPECT_EQ(hash_of("asked/latest"), hash_of("plain/latest"));
}

TEST_F(EvalTask, IsAnsweredWithoutValidationToo) {
  expect_success(flags("run", {"--eval-task", "questions.jsonl", "--val-fraction", "0"}));
  EXPECT_EQ(metrics("run")[14]["task"]["questions"], 3);
}

TEST_F(EvalTask, IsFoundByAResumedRun) {
  expect_success(flags("run", {"--eval-task", "questions.jsonl", "--stop-after", "20"}));
  EXPECT_EQ(json_in("run/run.json")["eval_task"], in("questions.jsonl").string());
  std::filesystem::create_directory(in("elsewhere"));
  const ProgramResult resumed = run_program("stage0_train", {"--resume", in("run")}, in("elsewhere"));
  ASSERT_EQ(resumed.exit_code, 0) << resumed.errors;
  EXPECT_TRUE(metrics("run").back().contains("task"));
  // A finished run answers once more, as it validates once more.
  const ProgramResult again = train({"--resume", "run", "--json"});
  EXPECT_EQ(nlohmann::json::parse(again.output)["task"], metrics("run").back()["task"]);
}

TEST_F(EvalTask, IsRefusedWithItsLine) {
  directory.write("questions.jsonl", "{\"context\": \"the\"}\n");
  expect_failure(train(flags("run", {"--eval-task", "questions.jsonl"})), 2,
                 "stage0_train: --eval-task: \"questions.jsonl\": line 1: ");
  EXPECT_FALSE(std::filesystem::exists(in("run")));
}

}  // namespace
}  // namespace stagegpt::test
