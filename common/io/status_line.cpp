#include "common/io/status_line.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

namespace stagegpt {
namespace {

std::size_t terminal_width() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : 80;
}

}  // namespace

StatusLine::StatusLine() : terminal_(isatty(STDERR_FILENO) == 1) {}

StatusLine::~StatusLine() { end(); }

void StatusLine::end() {
  if (!std::exchange(shown_, {}).empty()) std::fputc('\n', stderr);
}

void StatusLine::show(bool plain, const std::function<std::string(std::size_t width)>& line) {
  if (terminal_) {
    erase();
    // Narrower than the window, because a line that wraps cannot be rewritten.
    shown_ = line(terminal_width() - 1);
    std::fputs(shown_.c_str(), stderr);
  } else if (plain) {
    std::fprintf(stderr, "%s\n", line(std::string::npos).c_str());
  }
  std::fflush(stderr);
}

void StatusLine::print_above(const std::string& text) {
  if (terminal_) erase();
  std::fprintf(stderr, "%s\n%s", text.c_str(), shown_.c_str());
  std::fflush(stderr);
}

void StatusLine::erase() {
  // If the window has become narrower, the terminal has wrapped the line into rows.
  const std::size_t rows = shown_.empty() ? 0 : (shown_.size() - 1) / terminal_width();
  if (rows > 0) std::fprintf(stderr, "\x1b[%zuA", rows);
  std::fputs("\r\x1b[J", stderr);
}

std::string clock_time(double seconds) {
  const auto total = static_cast<long long>(seconds + 0.5);
  const long long hours = total / 3600, minutes = total / 60 % 60;
  char text[64];
  if (hours > 0) {
    std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", hours, minutes, total % 60);
  } else {
    std::snprintf(text, sizeof text, "%lld:%02lld", minutes, total % 60);
  }
  return text;
}

}  // namespace stagegpt
