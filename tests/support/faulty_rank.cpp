// Preloaded into a program that mpirun starts: ends the rank that STAGEGPT_EARLY_EXIT names, after a second,
// as if it had come to its end; has the thread that SIGUSR2 meets sleep for ever, while others of the
// process go on; with STAGEGPT_SLOW_DISK every file or directory of a checkpoint takes so many milliseconds to
// reach the disk; and with STAGEGPT_NODES the ranks are divided among so many nodes: those of one node share
// no memory with another's.
#include <dlfcn.h>
#include <mpi.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

namespace {

// 0 where the variable is not set.
int number(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? 0 : std::atoi(text);
}

// What the MPI library calls so: this library is not linked with it, since mpirun loads this one too.
template <class Function>
Function* in_mpi(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

extern "C" void hang(int) {
  while (true) pause();
}

// In place of the C library's.
extern "C" int fsync(int file) {
  char path[PATH_MAX] = {};
  const std::string name = "/proc/self/fd/" + std::to_string(file);
  const bool counts = readlink(name.c_str(), path, sizeof path - 1) > 0 && std::strstr(path, "/checkpoints/");
  if (counts) std::this_thread::sleep_for(std::chrono::milliseconds(number("STAGEGPT_SLOW_DISK")));
  return static_cast<int>(syscall(SYS_fsync, file));
}

// In place of the MPI library's.
extern "C" int MPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm* part) {
  const int nodes = number("STAGEGPT_NODES");
  if (nodes == 0) {
    return in_mpi<decltype(MPI_Comm_split_type)>("PMPI_Comm_split_type")(comm, type, key, info, part);
  }
  int rank = 0, size = 1;
  in_mpi<decltype(MPI_Comm_rank)>("PMPI_Comm_rank")(comm, &rank);
  in_mpi<decltype(MPI_Comm_size)>("PMPI_Comm_size")(comm, &size);
  return in_mpi<decltype(MPI_Comm_split)>("PMPI_Comm_split")(comm, rank * nodes / size, key, part);
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
