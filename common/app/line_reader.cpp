#include "common/app/line_reader.h"

#include <editline/readline.h>
#include <unistd.h>

#include <clocale>
#include <cstdlib>
#include <iostream>
#include <memory>

namespace stagegpt {
namespace {

namespace fs = std::filesystem;

constexpr int kHistoryLines = 1000;
constexpr const char* kPrompt = "> ";

// Empty if the user has no home. XDG base directory specification: state.
fs::path history_file() {
  if (const char* state = std::getenv("XDG_STATE_HOME"); state && *state == '/')
    return fs::path(state) / "stagegpt/history";
  const char* home = std::getenv("HOME");
  return home && *home ? fs::path(home) / ".local/state/stagegpt/history" : fs::path();
}

}  // namespace

LineReader::LineReader() : edits_(isatty(STDIN_FILENO) == 1 && isatty(STDERR_FILENO) == 1) {
  if (!edits_) return;
  // Without a locale a character of several bytes would be deleted byte by byte.
  if (MB_CUR_MAX == 1 && (!std::setlocale(LC_CTYPE, "") || MB_CUR_MAX == 1))
    std::setlocale(LC_CTYPE, "C.UTF-8");
  rl_outstream = stderr;  // standard output is for the texts
  using_history();
  stifle_history(kHistoryLines);
  history_ = history_file();
  if (!history_.empty()) read_history(history_.c_str());
}

LineReader::~LineReader() {
  if (!edits_ || history_.empty()) return;
  std::error_code ignored;
  fs::create_directories(history_.parent_path(), ignored);
  write_history(history_.c_str());
}

std::optional<std::string> LineReader::next() {
  std::string line;
  if (!edits_) {
    if (isatty(STDIN_FILENO) == 1) std::cerr << kPrompt;
    return std::getline(std::cin, line) ? std::optional(line) : std::nullopt;
  }
  const std::unique_ptr<char, void (*)(void*)> typed(readline(kPrompt), std::free);
  if (!typed) return std::nullopt;
  line = typed.get();
  if (!line.empty()) add_history(line.c_str());
  return line;
}

}  // namespace stagegpt
