// Captures standard error while it is a terminal.
#pragma once

#include <gtest/gtest.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <string>

namespace stagegpt::test {

// The text that `job` writes to standard error on a terminal with `columns` columns (0: unknown). The text
// may have at most 4 kB, the size of the terminal's buffer.
template <class Job>
std::string on_a_terminal(const Job& job, unsigned short columns = 0) {
  int screen = -1, terminal = -1;
  const winsize size{.ws_row = 25, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
  EXPECT_EQ(openpty(&screen, &terminal, nullptr, nullptr, &size), 0);
  const int before = dup(STDERR_FILENO);
  dup2(terminal, STDERR_FILENO);
  job();
  dup2(before, STDERR_FILENO);
  for (const int fd : {before, terminal}) close(fd);
  std::string written;
  for (char byte = 0; read(screen, &byte, 1) == 1;) written += byte;  // ends when the terminal is closed
  close(screen);
  return written;
}

}  // namespace stagegpt::test
