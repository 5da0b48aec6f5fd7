// Preloaded into a program that mpirun starts: ends the rank that STAGEGPT_EARLY_EXIT names, after a second,
// as if it had come to its end; and has the thread that SIGUSR2 meets sleep for ever, while others of the
// process go on.
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
