// stageN_generate --interactive: lines that are edited on a terminal, and conversations.
#include <poll.h>
#include <pty.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "common/base/error.h"
#include "tests/checkpoint/small_run.h"
#include "tests/support/patterns.h"

namespace stagegpt::test {
namespace {

// Runs a program on a pseudo-terminal, with its user's files in `directory`.
class Terminal {
 public:
  Terminal(const std::filesystem::path& directory, const Arguments& command) {
    pid_ = forkpty(&fd_, nullptr, nullptr, nullptr);
    if (pid_ != 0) return;
    std::vector<char*> arguments;
    for (const std::string& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
    arguments.push_back(nullptr);
    setenv("XDG_STATE_HOME", (directory / "state").c_str(), 1);
    setenv("LC_ALL", "C", 1);
    setenv("TERM", "xterm", 1);
    if (chdir(directory.c_str()) == 0) execv(arguments[0], arguments.data());
    _exit(127);
  }
  ~Terminal() { close(fd_); }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  void type(const std::string& keys) const {
    ASSERT_EQ(write(fd_, keys.data(), keys.size()), std::ssize(keys));
  }
  // Reads until `text` has been read, and at least `least` bytes. Returns false if the program ends before,
  // if it writes too much, or if it waits.
  bool shows(const std::string& text, std::size_t least = 0) const {
    constexpr std::size_t kMost = 100000;
    constexpr int kPatience = 20'000;  // milliseconds
    std::string shown;
    bool found = false;
    while (!found || shown.size() < least) {
      char byte = 0;
      pollfd input{.fd = fd_, .events = POLLIN, .revents = 0};
      if (shown.size() == kMost || poll(&input, 1, kPatience) != 1 || read(fd_, &byte, 1) != 1) return false;
      shown += byte;
      found = found || shown.ends_with(text);
    }
    return true;
  }
  // Waits for the prompt, and until the program reads key by key: the terminal itself would edit keys that
  // come earlier.
  void wait_for_prompt() const {
    ASSERT_TRUE(shows("> "));
    termios settings{};
    do {
      ASSERT_EQ(tcgetattr(fd_, &settings), 0);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    } while ((settings.c_lflag & ICANON) != 0);
  }
  int exit_code() const {
    int status = 0;
    waitpid(pid_, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  int fd_ = -1;
  pid_t pid_ = -1;
};

constexpr const char *kUp = "\x1b[A", *kLeft = "\x1b[D", *kBackspace = "\x7f", *kEnd = "\x04";

class Interactive : public SmallRun {
 protected:
  Interactive() {
    directory.write("text.txt", read_bytes(in("text.txt")) + std::string("the \u00e4 cat\n"));
    expect_success(with(model_flags(), {"--steps", "60", "--run-dir", "run"}));
  }
  static Arguments command(const Arguments& more) {
    return with({concat(STAGEGPT_BIN_DIR, "/stage0_generate"), "--model", "run", "--threads", "1",
                 "--temperature", "0"},
                more);
  }
  // What the program prints on standard output for these lines, which it reads from a file.
  std::string answers(const std::string& lines, const Arguments& more) const {
    directory.write("lines", lines);
    const Arguments arguments = command(with({"--interactive"}, more));
    const ProgramResult result = run_program(arguments[0], {arguments.begin() + 1, arguments.end()},
                                             directory.path(), {.input_from = in("lines")});
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    errors_ = result.errors;
    return result.output;
  }
  std::string text_of(const std::string& prompt, const Arguments& more) const {
    const Arguments arguments = command(with({"--prompt", prompt}, more));
    return run_program(arguments[0], {arguments.begin() + 1, arguments.end()}, directory.path()).output;
  }
  // Types keys at the prompt of a new session, and returns whether the program then answers to `line`.
  bool answers_to(const std::string& keys, const std::string& line) const {
    const std::string answer = replace_matches(text_of(line, {"--max-new-tokens", "12"}), "\n", "\r\n");
    const Terminal terminal(directory.path(), command({"--interactive", "--max-new-tokens", "12"}));
    terminal.wait_for_prompt();
    terminal.type(keys + "\n");
    // The text begins on a line of its own, behind what was typed.
    const bool shown = terminal.shows("\n" + answer);
    terminal.wait_for_prompt();
    terminal.type(kEnd);
    EXPECT_TRUE(terminal.shows("ms per token"));
    EXPECT_EQ(terminal.exit_code(), 0);
    return shown;
  }

  mutable std::string errors_;  // of answers()
};

TEST_F(Interactive, EndsATextAndNotTheConversationOnCtrlC) {
  const Terminal terminal(directory.path(), command({"--interactive", "--max-new-tokens", "1000000000000"}));
  ASSERT_TRUE(terminal.shows("one prompt per line; Ctrl-C ends a text, Ctrl-D the program\r\n"));
  for (int text = 0; text < 2; ++text) {
    terminal.wait_for_prompt();
    terminal.type("the\n");
    ASSERT_TRUE(terminal.shows("the", 300));
    terminal.type("\x03");
  }
  terminal.wait_for_prompt();
  terminal.type(kEnd);
  EXPECT_TRUE(terminal.shows("ms per token"));
  EXPECT_EQ(terminal.exit_code(), 0);
}

TEST_F(Interactive, LinesCanBeEdited) {
  EXPECT_TRUE(answers_to(std::string("the cot") + kLeft + kBackspace + "a", "the cat"));
  EXPECT_TRUE(answers_to(std::string("the \u00e4\u00e4") + kBackspace + " c", "the \u00e4 c"));
}

TEST_F(Interactive, EarlierLinesComeBack) {
  EXPECT_TRUE(answers_to("the cat", "the cat"));
  EXPECT_TRUE(answers_to("on the", "on the"));
  EXPECT_TRUE(answers_to(std::string(kUp) + kUp, "the cat"));
  EXPECT_NE(read_bytes(in("state/stagegpt/history")).find("the"), std::string::npos);
}

TEST_F(Interactive, AHistoryThatCannotBeWrittenIsNoError) {
  directory.write("state", "a file");
  EXPECT_TRUE(answers_to("the cat", "the cat"));
}

// With the penalty, an answer avoids the letters of the text so far.
TEST_F(Interactive, APromptOfAConversationFollowsTheTextSoFar) {
  const Arguments tokens = {"--max-new-tokens", "6", "--repetition-penalty", "1000"};
  const std::string both = answers("the\non\n", with(tokens, {"--keep-context"}));
  const std::string first = text_of("the", tokens);
  EXPECT_EQ(both, text_of(first + "on", tokens));
  EXPECT_NE(both, answers("the\non\n", tokens)) << "the context makes no difference";
  EXPECT_EQ(errors_.find("note: "), std::string::npos) << errors_;
}

TEST_F(Interactive, AnEmptyLineBeginsANewText) {
  const Arguments tokens = {"--max-new-tokens", "6"};
  EXPECT_EQ(answers("the\n\non\n", with(tokens, {"--keep-context"})),
            text_of("the", tokens) + text_of("on", tokens));
  EXPECT_NE(errors_.find("a new text begins\n"), std::string::npos) << errors_;
}

TEST_F(Interactive, AConversationMayBeLongerThanTheContext) {
  const Arguments tokens = {"--max-new-tokens", "6"};
  const std::string all = answers("the\non\nthe cat\nsat\n", with(tokens, {"--keep-context"}));
  EXPECT_GE(all.size(), 3u + 2 + 7 + 3 + 4 * 7) << all;  // each prompt, its answer and a line break
  const std::string note =
      "note: the text is longer than the model's context of 16 tokens; its beginning is not seen any more\n";
  const std::size_t at = errors_.find(note);
  ASSERT_NE(at, std::string::npos) << errors_;
  EXPECT_EQ(errors_.find(note, at + 1), std::string::npos) << errors_;  // once
}

// The vocabulary of a text of one line has no line break.
TEST_F(Interactive, AConversationNeedsATokenizerWithALineBreak) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "the cat sat on the mats. ";
  directory.write("line.txt", text);
  expect_success(with(model_flags(), {"--data", "line.txt", "--steps", "1", "--run-dir", "line"}));
  directory.write("lines", "the\non\tit\n");
  const auto answered = [&](const Arguments& more) {
    return run_program("stage0_generate", with({"--model", "line", "--interactive"}, more), directory.path(),
                       {.input_from = in("lines")});
  };
  const ProgramResult conversation = answered({"--keep-context"});
  EXPECT_EQ(conversation.exit_code, 2);
  EXPECT_EQ(conversation.output, "");
  EXPECT_EQ(conversation.errors,
            "stage0_generate: --keep-context: the tokenizer has no line break, which separates prompts and "
            "answers\n");
  // Without a conversation only a line that has such a character is refused, in one line.
  const ProgramResult texts = answered({});
  EXPECT_EQ(texts.exit_code, 0);
  EXPECT_NE(texts.errors.find("the prompt: the character '?' is not in the vocabulary\n"), std::string::npos)
      << texts.errors;
}

}  // namespace
}  // namespace stagegpt::test
