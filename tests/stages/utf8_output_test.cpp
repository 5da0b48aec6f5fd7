// Generated text that programs print is valid UTF-8, whatever bytes the model generates and wherever the text
// ends.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "common/base/error.h"
#include "common/data/utf8.h"
#include "tests/checkpoint/small_run.h"

namespace stagegpt::test {
namespace {

constexpr const char* kReplacement = "\uFFFD";

// A model that has learnt nothing, whose tokens are single bytes: most sequences of them are no UTF-8.
class Utf8Output : public SmallRun {
 protected:
  Utf8Output() {
    const Arguments flags =
        with_flags(model_flags(), {"--tokenizer", "bpe", "--vocab-size", "257", "--max-new-tokens", "300",
                                   "--learning-rate", "1e-9", "--steps", "1", "--run-dir", "run"});
    trained_ = train(flags);
    EXPECT_EQ(trained_.exit_code, 0) << trained_.errors;
  }

  // At this temperature all tokens are as probable as each other.
  static Arguments call(const Arguments& more) {
    return with({"--model", "run", "--threads", "1", "--temperature", "1000"}, more);
  }
  std::string written(const Arguments& more) const {
    const ProgramResult result = run_program("stage0_generate", call(more), directory.path());
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    expect_utf8(result.output);
    return result.output;
  }
  // stage0_generate as a word of the shell, in the test's directory.
  std::string generate(const Arguments& more) const {
    std::string words = concat("'", STAGEGPT_BIN_DIR, "/stage0_generate'");
    for (const std::string& word : call(more)) words += ' ' + word;
    return words;
  }
  int shell(const std::string& line) const {
    return std::system(concat("cd '", directory.path().string(), "' && ", line).c_str());
  }
  static void expect_utf8(const std::string& text) { EXPECT_EQ(utf8_prefix(text), text.size()) << text; }

  ProgramResult trained_;
};

TEST_F(Utf8Output, IsTheSampleAfterTraining) {
  expect_utf8(trained_.output);
  EXPECT_NE(trained_.output.find(kReplacement), std::string::npos) << trained_.output;
}

// Of 300 texts many end inside a character.
TEST_F(Utf8Output, IsEveryText) {
  const Arguments texts = {"--num-samples", "300", "--max-new-tokens", "3", "--prompt", "a"};
  const std::string plain = written(texts);
  EXPECT_NE(plain.find(concat(kReplacement, "\n---\n")), std::string::npos);
  // The same texts as those of --json, which gives what is no UTF-8 by itself no other form.
  const auto json = nlohmann::json::parse(written(with(texts, {"--json"})));
  std::string joined;
  for (const auto& sample : json["samples"])
    joined += concat(joined.empty() ? "a" : "---\na", sample["text"].get<std::string>(), "\n");
  EXPECT_EQ(plain, joined);
}

// A byte that only begins a character is one that is missing, not none.
TEST_F(Utf8Output, HasACharacterForEachByteByItself) {
  const auto json = nlohmann::json::parse(
      written({"--num-samples", "300", "--max-new-tokens", "1", "--prompt", "a", "--json"}));
  for (const auto& sample : json["samples"]) {
    EXPECT_EQ(sample["text"] == "", sample["ended_by"] == "end_of_text") << sample;
  }
}

TEST_F(Utf8Output, IsAPromptThatIsNone) {
  const Arguments short_text = {"--max-new-tokens", "2"};
  EXPECT_TRUE(
      written(with(short_text, {"--prompt", "x\xff y"})).starts_with(concat("x", kReplacement, " y")));
  written(with(short_text, {"--prompt", "\xf0\x9f"}));
  const auto json = nlohmann::json::parse(written(with(short_text, {"--json", "--prompt", "\xf0\x9f"})));
  EXPECT_EQ(json["prompt"], kReplacement);
}

TEST_F(Utf8Output, IsAConversation) {
  directory.write("prompts", "a\n\xe2\x82\n\xff\nb");
  ASSERT_EQ(shell(generate({"--interactive", "--max-new-tokens", "50", "< prompts > written 2> errors"})), 0);
  const std::string text = read_bytes(in("written"));
  expect_utf8(text);
  EXPECT_GE(std::ranges::count(text, '\n'), 4);
}

// The default action of a signal: nothing of a character that has only begun has been written.
TEST_F(Utf8Output, IsATextThatASignalEnds) {
  const std::string in_background = generate({"--num-samples", "1000000", "> written 2> errors & "});
  ASSERT_EQ(shell(concat(": > written; { ", in_background, "pid=$!; ",
                         "while kill -0 $pid && [ $(stat -c %s written) -lt 3000 ]; do sleep 0.01; done; ",
                         "kill -TERM $pid; ! wait $pid; }")),
            0);
  const std::string text = read_bytes(in("written"));
  EXPECT_GE(text.size(), 3000u);
  expect_utf8(text);
}

TEST_F(Utf8Output, HasNoUseForAStopStringThatIsNone) {
  const ProgramResult result =
      run_program("stage0_generate", call({"--stop", "the", "--stop", "x\xff"}), directory.path());
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.errors.find("--stop: expected UTF-8, as generated text is; byte 1 starts no character"),
            std::string::npos)
      << result.errors;
}

}  // namespace
}  // namespace stagegpt::test
