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
  // Ends the line: what is printed next stands below it.
  void end();

 private:
  bool terminal_;
  bool open_ = false;
};

// "1:05" or "2:03:04".
std::string clock_time(double seconds);

}  // namespace stagegpt
