// A line on standard error that tells how far a long job is: rewritten on a terminal, plain lines elsewhere.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

namespace stagegpt {

class StatusLine {
 public:
  StatusLine();
  ~StatusLine();
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;

  bool is_terminal() const { return terminal_; }
  // Shows line(width), of at most `width` characters: on a terminal always, elsewhere when `plain` is set.
  void show(bool plain, const std::function<std::string(std::size_t width)>& line);
  // Prints whole lines, on a terminal above the line that is shown.
  void print_above(const std::string& text);
  // Ends the line: what is printed next stands below it.
  void end();

 private:
  bool terminal_;
  // Of a terminal: goes back to the beginning of the line that is shown, and removes it.
  void erase();

  std::string shown_;  // what stands in the line; empty where there is none
};

// "1:05" or "2:03:04".
std::string clock_time(double seconds);

}  // namespace stagegpt
