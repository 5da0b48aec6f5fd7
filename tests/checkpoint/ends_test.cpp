// The end of runs: validation, messages, and that a finished run is not changed.
#include <csignal>

#include "common/base/error.h"
#include "common/base/json.h"
#include "tests/checkpoint/small_run.h"

namespace stagegpt::test {
namespace {

namespace fs = std::filesystem;

// The loss is low at the beginning of the validation data and high at its end. So the validation loss shows
// which windows were used.
class EndOfARun : public SmallRun {
 protected:
  EndOfARun() {
    std::string text;
    for (int i = 0; i < 160; ++i) text += "the cat sat on the mats.\n";
    text.resize(3600);
    text += std::string(text, 0, 200);
    for (int i = 0; i < 200; ++i) text += "mnoace\n"[i * i * i % 7];
    directory.write("text.txt", text);
  }

  static Arguments flags(const std::string& run, const Arguments& more = {}) {
    return with(model_flags(), with({"--steps", "12", "--eval-every", "5", "--run-dir", run}, more));
  }
  nlohmann::json json_of(const Arguments& arguments) const {
    const ProgramResult result = expect_success(with(arguments, {"--json"}));
    return nlohmann::json::parse(result.output);
  }
};

TEST_F(EndOfARun, ValidatesTheSameWindowsAsTheStepsBefore) {
  const ProgramResult all = train(flags("all"));
  expect_said(all, "validation: all 384 tokens, in 24 windows of 16\n");  // of the last 400 characters
  expect_said(all, " bits per byte, of all 384 tokens\n");
  const ProgramResult some = train(flags("some", {"--eval-tokens", "70", "--json"}));
  expect_said(some, "validation: 64 of 384 tokens, in 4 of 24 windows of 16, spread evenly\n");

  const auto of_all = metrics("all"), of_some = metrics("some");
  ASSERT_EQ(of_some.size(), 12u);
  for (const int step : {5, 10, 12}) {
    EXPECT_EQ(of_all[step - 1]["validation_tokens"], 384) << step;
    EXPECT_EQ(of_some[step - 1]["validation_tokens"], 64) << step;
    EXPECT_NE(of_some[step - 1]["validation_loss"], of_all[step - 1]["validation_loss"]) << step;
  }
  const nlohmann::json state = json_in("some/best/trainer_state.json");
  EXPECT_EQ(state["validation_tokens"], 64);
  const nlohmann::json& last = of_some.back();
  EXPECT_EQ(state["validation_loss"], last["validation_loss"]);
  // The report at the end has the validation of the last step.
  const nlohmann::json result = nlohmann::json::parse(some.output);
  EXPECT_EQ(result["validation_loss"], last["validation_loss"]);
  EXPECT_EQ(result["validation_accuracy"], last["validation_accuracy"]);
  EXPECT_EQ(result["bits_per_byte"], last["bits_per_byte"]);
  EXPECT_EQ(result["validation_tokens"], 64);
  EXPECT_EQ(result["validation_windows"], 4);
  EXPECT_EQ(result["validation_windows_all"], 24);
  expect_said(some, concat("validation loss ", last["validation_loss"].get<double>(), " nats per token, "));
  expect_said(some, " bits per byte, of 64 of 384 tokens\n");
}

// As many windows as take a tenth of the passes of 12 steps of 2 sequences would be 2 in each of 3
// validations. So they are 64. A run that goes on keeps what it began with, also with more steps.
TEST_F(EndOfARun, ValidatesAtLeast64Windows) {
  std::string text;
  for (int i = 0; i < 2000; ++i) text += "the cat sat on the mats.\n";
  directory.write("text.txt", text);
  expect_said(train(flags("run")),
              "validation: 1,024 of 4,992 tokens, in 64 of 312 windows of 16, spread evenly\n");
  const auto settings = json_in("run/run.json");
  EXPECT_TRUE(settings["eval_tokens"].is_null());
  EXPECT_EQ(settings["derived"]["eval_tokens"], 1024);
  expect_said(train({"--resume", "run", "--steps", "12000", "--stop-after", "13"}), "64 of 312 windows");
}

TEST_F(EndOfARun, ThatIsStoppedBeforeItsHorizonIsValidatedToo) {
  const Arguments some = {"--eval-tokens", "64"};
  expect_success(flags("whole", some));
  const nlohmann::json result = json_of(flags("run", with(some, {"--stop-after", "7"})));
  EXPECT_EQ(result["validation_tokens"], 64);
  // metrics.jsonl does not contain this validation: the run may be resumed.
  EXPECT_FALSE(metrics("run").back().contains("validation_loss"));
  const double seconds = result["training_seconds"];
  const nlohmann::json whole = json_of({"--resume", "run"});
  EXPECT_EQ(metrics("run"), metrics("whole"));
  EXPECT_GT(whole["training_seconds"], seconds);
}

TEST_F(EndOfARun, FinishedStaysAsItIs) {
  expect_success(flags("run", {"--eval-tokens", "64"}));
  const auto before = files_of("run");
  const ProgramResult result = train({"--resume", "run", "--learning-rate", "0.1", "--batch-size", "4"});
  EXPECT_EQ(result.exit_code, 0);
  expect_said(result,
              "run: run has done all steps of --steps, 12; to continue it, give more, such as --resume "
              "run --steps 24\n");
  expect_said(result, "nothing is trained or saved\nvalidation loss ");
  EXPECT_EQ(result.errors.find("changes from"), std::string::npos) << result.errors;
  EXPECT_EQ(result.errors.find("resumed from"), std::string::npos) << result.errors;
  const nlohmann::json json = json_of({"--resume", "run"});
  EXPECT_TRUE(json["loss"].is_null());
  EXPECT_EQ(json["validation_loss"], metrics("run").back()["validation_loss"]);
  EXPECT_EQ(files_of("run"), before);
  expect_refused({"--resume", "run", "--seed", "7"}, "--seed: expected 1337");
}

TEST_F(EndOfARun, AtAnEarlierStepThanItHasDoneStaysAsItIs) {
  expect_success(flags("run", {"--stop-after", "7"}));
  const auto before = files_of("run");
  const ProgramResult result = train({"--resume", "run", "--stop-after", "6", "--learning-rate", "0.1"});
  EXPECT_EQ(result.exit_code, 0);
  expect_said(result,
              "run: run has done 7 steps, --stop-after asks for 6; to continue it, give a later step, or "
              "leave out --stop-after\n");
  EXPECT_EQ(result.errors.find("changes from"), std::string::npos) << result.errors;
  EXPECT_EQ(files_of("run"), before);
}

TEST_F(EndOfARun, BeforeTheStepOfStopAfterIsSaid) {
  const std::string note = "note: --stop-after: ";
  const ProgramResult result = expect_success(flags("run", {"--stop-after", "13"}));
  expect_said(result, note + "13 exceeds --steps 12, where the run ends\n");
  EXPECT_EQ(metrics("run").size(), 12u);
  EXPECT_EQ(train(flags("other", {"--stop-after", "12"})).errors.find(note), std::string::npos);
}

TEST_F(EndOfARun, WithoutAValidationPart) {
  const ProgramResult result =
      expect_success(flags("run", {"--val-fraction", "0", "--checkpoint-every", "6"}));
  expect_said(result, "4,000 tokens for training");
  expect_said(result, "\nno validation (--val-fraction 0)\n");
  expect_said(result, " s: no validation (--val-fraction 0)\n");
  for (const nlohmann::json& line : metrics("run"))
    EXPECT_EQ(line.dump().find("validation"), std::string::npos);
  EXPECT_FALSE(fs::exists(in("run/best")));
  EXPECT_TRUE(json_in("run/latest/trainer_state.json")["validation_loss"].is_null());
  const nlohmann::json json = json_of({"--resume", "run", "--steps", "14"});
  for (const char* field : {"validation_loss", "validation_accuracy", "validation_tokens", "bits_per_byte"}) {
    EXPECT_TRUE(json.at(field).is_null()) << field;
  }
}

// Its text is not trained on.
TEST_F(EndOfARun, WithoutValidations) {
  const ProgramResult result = train(flags("run", {"--eval-tokens", "64"}));
  const Arguments never = with_flags(flags("never"), {"--eval-every", "0"});
  const ProgramResult without = expect_success(with(never, {"--checkpoint-every", "6"}));
  expect_said(without, "3,600 tokens for training");
  expect_said(without, "\nno validation (--eval-every 0)\nmachine");
  expect_said(without, " s: no validation (--eval-every 0)\n");
  EXPECT_FALSE(fs::exists(in("never/best")));
  const auto lines = metrics("run"), others = metrics("never");
  ASSERT_EQ(others.size(), lines.size());
  for (std::size_t i = 0; i < lines.size(); ++i) EXPECT_EQ(others[i]["loss"], lines[i]["loss"]) << i;
  EXPECT_EQ(others.back().dump().find("validation"), std::string::npos);
  expect_refused(with(never, {"--patience", "1"}),
                 "--patience: there is no validation to compare, with --eval-every 0");
  expect_refused(with(never, {"--eval-task", "q"}), "--eval-task: is answered with every validation");
}

// The training is complete then.
TEST_F(EndOfARun, ASignalEndsTheLastValidation) {
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += "the cat sat on the mats.\n";
  directory.write("long.txt", text);
  const Arguments arguments = with_flags(
      flags("run"), {"--data", "long.txt", "--val-fraction", "0.9", "--eval-tokens", "0", "--steps", "1"});
  const ProgramResult result =
      expect_done(train(arguments, {.signal_after = "run: run", .signals = {SIGTERM}}));
  expect_said(result, " s: the last validation was stopped by a signal\nmodel: run/latest\n");
  EXPECT_EQ(json_in("run/latest/trainer_state.json")["step"], 1);
  EXPECT_FALSE(metrics("run").back().contains("validation_loss"));
}

}  // namespace
}  // namespace stagegpt::test
