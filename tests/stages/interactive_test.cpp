// stageN_generate --interactive: lines that are edited on a terminal.
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

// The vocabulary of the text has no tab. Only the line that has one is refused, in one line.
TEST_F(Interactive, ALineThatTheTokenizerLacksIsNamedWithoutItsControlCharacters) {
  directory.write("lines", "the\non\tit\n");
  const ProgramResult texts = run_program("stage0_generate", words("--model run --threads 1 --interactive"),
                                          directory.path(), {.input_from = in("lines")});
  EXPECT_EQ(texts.exit_code, 0);
  EXPECT_TRUE(texts.output.starts_with("the")) << texts.output;
  expect_said(texts, "the prompt: the character '?' is not in the vocabulary\n");
}

}  // namespace
}  // namespace stagegpt::test
