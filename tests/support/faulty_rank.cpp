// Preloaded into a program that mpirun starts: ends the rank that STAGEGPT_EARLY_EXIT names, after a second,
// as if it had come to its end; has the thread that SIGUSR2 meets sleep for ever, while others of the
// process go on; and with STAGEGPT_SLOW_DISK every file takes a fifth of a second to reach the disk.
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace {

extern "C" void hang(int) {
  while (true) pause();
}

// In place of the C library's.
extern "C" int fsync(int file) {
  if (std::getenv("STAGEGPT_SLOW_DISK") != nullptr) {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  return static_cast<int>(syscall(SYS_fsync, file));
}

const bool started = [] {
  std::signal(SIGUSR2, hang);
  const char *rank = std::getenv("OMPI_COMM_WORLD_RANK"), *chosen = std::getenv("STAGEGPT_EARLY_EXIT");
  if (rank == nullptr || chosen == nullptr || std::strcmp(rank, chosen) != 0) return false;
  std::thread([] {
    std::this_thread::sleep_for(std::chrono::seconds(1));
    _exit(0);
  }).detach();
  return true;
}();

}  // namespace
