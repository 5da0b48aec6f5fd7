// What is written to standard error while that is a terminal.
#pragma once

#include <gtest/gtest.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <string>

namespace stagegpt::test {

// Of `job`, on one of so many columns; with 0 they are not known. No more than a terminal holds unread: 4 kB.
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
  for (char byte = 0; read(screen, &byte, 1) == 1;) written += byte;  // fails when nobody writes any more
  close(screen);
  return written;
}

}  // namespace stagegpt::test
