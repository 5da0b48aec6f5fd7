#include "common/io/status_line.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>

namespace stagegpt {
namespace {

constexpr std::size_t kUsualWidth = 80;

bool rewrites_lines() {
  const char* term = std::getenv("TERM");
  return isatty(STDERR_FILENO) == 1 && (term == nullptr || std::string_view(term) != "dumb");
}

std::size_t columns() { return terminal_width(STDERR_FILENO).value_or(kUsualWidth); }

}  // namespace

std::optional<std::size_t> terminal_width(int descriptor) {
  winsize size{};
  if (isatty(descriptor) != 1) return std::nullopt;
  return ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : kUsualWidth;
}

StatusLine::StatusLine() : terminal_(rewrites_lines()) {}

StatusLine::~StatusLine() { end(); }

void StatusLine::end() {
  if (!std::exchange(shown_, {}).empty()) std::fputc('\n', stderr);
}

void StatusLine::show(bool plain, const std::function<std::string(std::size_t width)>& line) {
  if (terminal_) {
    erase();
    // Narrower than the window, because a line that wraps cannot be rewritten.
    shown_ = line(columns() - 1);
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
  const std::size_t rows = shown_.empty() ? 0 : (shown_.size() - 1) / columns();
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
