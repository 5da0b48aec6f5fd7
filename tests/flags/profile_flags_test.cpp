// --profile and --profile-steps of the programs: the file, and what is refused before the first step.
#include <gtest/gtest.h>

#include <csignal>

#include "tests/flags/traced_run.h"
#include "tests/support/trace.h"

namespace stagegpt::test {
namespace {

const Arguments kSmall = words("--n-layer 1 --n-head 1 --n-embd 8 --block-size 8");

std::vector<int> numbers(const Trace& trace, const std::string& unit) {
  std::vector<int> numbers;
  for (const TraceSpan& span : trace.named(unit)) numbers.push_back(span.args["number"]);
  return numbers;
}

// Training in a directory with a text.
class ProfileFlags : public testing::Test {
 protected:
  ProgramResult run(const std::string& program, const Arguments& arguments, const RunOptions& options = {}) {
    return run_program(program, arguments + Arguments{"--threads", "1"}, directory(), options);
  }
  ProgramResult train(const Arguments& arguments, const RunOptions& options = {}) {
    const Arguments usual =
        kSmall + words("--data text.txt --tokenizer char --run-dir run --max-new-tokens 0");
    return run("stage0_train", with_flags(usual, arguments), options);
  }
  const std::filesystem::path& directory() const { return text_.directory().path(); }
  Trace trace() const { return read_trace(directory() / "p.json"); }

  TracedRun text_;
};

TEST_F(ProfileFlags, OfTrainWriteATimelineOfTheSteps) {
  const ProgramResult result =
      train(words("--steps 9 --profile p.json --profile-steps 3:5 --checkpoint-every 4 --eval-every 5"));
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  expect_said(result, "profile: steps 3 to 5 in p.json\n");
  const Trace profile = trace();
  EXPECT_EQ(numbers(profile, "step"), (std::vector<int>{3, 4, 5}));
  const auto steps = profile.named("step");
  // The checkpoint after step 4, the last validation after step 5.
  ASSERT_EQ(profile.named("checkpoint").size(), 1u);
  EXPECT_TRUE(steps[1].contains(profile.named("checkpoint")[0]));
  EXPECT_TRUE(profile.named("checkpoint")[0].contains(profile.named("write files").at(0)));
  ASSERT_FALSE(profile.named("validation").empty());
  EXPECT_TRUE(steps[2].contains(profile.named("validation").back()));
}

TEST_F(ProfileFlags, HaveADefaultThatCountsTheStepsOfTheCall) {
  ASSERT_EQ(train(words("--steps 20 --stop-after 10 --profile p.json")).exit_code, 0);
  EXPECT_EQ(numbers(trace(), "step"), (std::vector<int>{2, 3, 4}));
  ASSERT_EQ(run("stage0_train", words("--resume run --stop-after 15 --profile p.json")).exit_code, 0);
  EXPECT_EQ(numbers(trace(), "step"), (std::vector<int>{12, 13, 14}));
  ASSERT_EQ(run("stage0_train", words("--resume run --stop-after 16 --profile p.json")).exit_code, 0);
  EXPECT_EQ(numbers(trace(), "step"), (std::vector<int>{16}));
  expect_failure(run("stage0_train", words("--resume run --profile p.json --profile-steps 3:5")), 2,
                 "--profile-steps: expected steps of this call, which does 17 to 20, not '3:5'");
}

TEST_F(ProfileFlags, OfARunThatIsStoppedKeepTheStepsThatWereDone) {
  for (const int signal : {SIGINT, SIGTERM}) {
    std::filesystem::remove_all(directory() / "run");
    const ProgramResult result = train(
        {"--steps", "1e6", "--profile", "p.json", "--profile-steps", "2:1e6", "--checkpoint-every", "5"},
        {.signal_after = "step_00000005", .signals = {signal}});
    EXPECT_EQ(result.exit_code, 75) << result.errors;
    EXPECT_GE(numbers(trace(), "step").size(), 2u);
  }
}

TEST_F(ProfileFlags, AreRefusedBeforeAnyStep) {
  const auto refusal = [&](const Arguments& arguments) {
    const ProgramResult result = train(Arguments{"--steps", "9"} + arguments);
    EXPECT_EQ(result.exit_code, 2) << result.errors;
    EXPECT_FALSE(std::filesystem::exists(directory() / "run"));
    EXPECT_EQ(std::ranges::count(result.errors, '\n'), 1) << result.errors;
    return result.errors;
  };
  const auto range = [&](const std::string& text) {
    return refusal({"--profile", "p.json", "--profile-steps", text});
  };
  EXPECT_NE(range("5:30").find("--profile-steps: expected steps of this call, which does 1 to 9, not '5:30'"),
            std::string::npos);
  EXPECT_NE(range("5").find("--profile-steps: expected FIRST:LAST, such as 2:4, not '5'"), std::string::npos);
  EXPECT_NE(range("6:5").find("--profile-steps: expected FIRST <= LAST, not '6:5'"), std::string::npos);
  for (const char* text : {"0:3", "a:3", "3:b", ":", "1:2:3", "-1:3", "1:"})
    EXPECT_NE(range(text).find("--profile-steps: expected a whole number from 1 to "), std::string::npos)
        << text;
  EXPECT_NE(refusal({"--profile-steps", "1:2"}).find("--profile-steps: is for --profile"), std::string::npos);
  EXPECT_NE(
      refusal({"--profile", "none/p.json"}).find("--profile: cannot open \"none/p.json\": No such file"),
      std::string::npos);
  EXPECT_NE(refusal({"--profile", "."}).find("is not a regular file"), std::string::npos);
}

TEST_F(ProfileFlags, OfBenchWriteATimelineOfTimedSteps) {
  const Arguments bench = kSmall + words("--vocab-size 50 --steps 4 --warmup 1");
  const ProgramResult result =
      run("stage0_bench", bench + Arguments{"--profile", "p.json", "--profile-steps", "2:3"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_EQ(numbers(trace(), "step"), (std::vector<int>{2, 3}));
  EXPECT_EQ(trace().named("adamw").size(), 2u);
  ASSERT_EQ(run("stage0_bench", bench + Arguments{"--generate", "--profile", "p.json"}).exit_code, 0);
  EXPECT_EQ(numbers(trace(), "step"), (std::vector<int>{2, 3, 4}));
  EXPECT_EQ(trace().named("cached_attention_forward").size(), 3u);
  EXPECT_EQ(run("stage0_bench", bench + Arguments{"--budget", "--profile", "p.json"}).exit_code, 2);
}

TEST_F(ProfileFlags, OfGenerateWriteATimelineOfTokens) {
  ASSERT_EQ(train({"--steps", "1"}).exit_code, 0);
  const Arguments generate = words("--model run --prompt abc --max-new-tokens 6 --profile p.json");
  ASSERT_EQ(run("stage0_generate", generate).exit_code, 0);
  EXPECT_EQ(numbers(trace(), "token"), (std::vector<int>{1, 2, 3, 4, 5, 6}));
  ASSERT_EQ(trace().named("prefill").size(), 1u);
  EXPECT_TRUE(trace().named("token")[0].contains(trace().named("prefill")[0]));
  // The prompt's three tokens at once, then one at a time.
  const auto attention = trace().named("cached_attention_forward");
  ASSERT_EQ(attention.size(), 6u);
  EXPECT_EQ(attention[0].args["shapes"].get<std::string>().substr(0, 9), "(1, 3, 8)");
  EXPECT_EQ(attention[1].args["shapes"].get<std::string>().substr(0, 9), "(1, 1, 8)");
  ASSERT_EQ(run("stage0_generate", generate + Arguments{"--profile-steps", "2:3"}).exit_code, 0);
  EXPECT_EQ(numbers(trace(), "token"), (std::vector<int>{2, 3}));
  EXPECT_EQ(run("stage0_generate", generate + Arguments{"--profile-steps", "2:7"}).exit_code, 2);
}

}  // namespace
}  // namespace stagegpt::test
