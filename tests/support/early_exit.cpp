// Preloaded into a program that mpirun starts, ends the rank that STAGEGPT_EARLY_EXIT names, after a second,
// as if it had come to its end.
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace {

const bool started = [] {
  const char *rank = std::getenv("OMPI_COMM_WORLD_RANK"), *chosen = std::getenv("STAGEGPT_EARLY_EXIT");
  if (rank == nullptr || chosen == nullptr || std::strcmp(rank, chosen) != 0) return false;
  std::thread([] {
    std::this_thread::sleep_for(std::chrono::seconds(1));
    _exit(0);
  }).detach();
  return true;
}();

}  // namespace
