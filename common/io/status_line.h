// A progress line on standard error: one line that is rewritten on a terminal, plain lines elsewhere, also
// where TERM says that the terminal cannot rewrite (dumb).
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

namespace stagegpt {

// The columns of a terminal, 80 if it does not say; none if the file descriptor is no terminal.
std::optional<std::size_t> terminal_width(int descriptor);

class StatusLine {
 public:
  StatusLine();
  ~StatusLine();
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;

  bool is_terminal() const { return terminal_; }
  // Shows line(width), which has at most `width` characters. Elsewhere than on a terminal, it is shown only
  // if `plain` is set.
  void show(bool plain, const std::function<std::string(std::size_t width)>& line);
  // Prints whole lines; on a terminal, above the progress line.
  void print_above(const std::string& text);
  // Ends the progress line, so that later output is printed below it.
  void end();

 private:
  bool terminal_;
  // Removes the progress line from a terminal.
  void erase();

  std::string shown_;  // the current progress line; empty if there is none
};

// "1:05" or "2:03:04".
std::string clock_time(double seconds);

}  // namespace stagegpt
