// Preloaded into a program that mpirun starts: ends the rank that STAGEGPT_EARLY_EXIT names, after a second,
// as if it had come to its end; has the thread that SIGUSR2 meets sleep for ever, while others of the
// process go on; with STAGEGPT_SLOW_DISK every file or directory of a checkpoint takes so many milliseconds
// to reach the disk; and with STAGEGPT_NODES the ranks are divided among so many nodes: those of one node
// share no memory with another's. With STAGEGPT_FREE_WAITS the end of a communicator waits for all its ranks.
// STAGEGPT_CORRUPT names a rank in which the last message of each all-reduce of one chunk among three arrives
// with other signs than it was sent with; STAGEGPT_NO_MEMORY a part of the path of a file for which, when it
// has been opened to be written, there is no memory for blocks.
#include <dlfcn.h>
#include <fcntl.h>
#include <mpi.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstdarg>
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

// What a rank has asked to receive last, how much, and how often with that tag.
struct LastReceived {
  float* floats = nullptr;
  int count = 0, tag = -1, calls = 0;
};
LastReceived last_received;

// Which every rank has to call, and which may wait until all have.
extern "C" int MPI_Comm_free(MPI_Comm* comm) {
  if (number("STAGEGPT_FREE_WAITS") != 0) in_mpi<decltype(MPI_Barrier)>("PMPI_Barrier")(*comm);
  return in_mpi<decltype(MPI_Comm_free)>("PMPI_Comm_free")(comm);
}

extern "C" int MPI_Irecv(void* buffer, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
                         MPI_Request* request) {
  const int calls =
      tag == last_received.tag ? last_received.calls + 1 : 1;  // each reduction has a tag of its own
  last_received = {static_cast<float*>(buffer), count, tag, calls};
  return in_mpi<decltype(MPI_Irecv)>("PMPI_Irecv")(buffer, count, type, from, tag, comm, request);
}

extern "C" int MPI_Waitall(int count, MPI_Request* requests, MPI_Status* statuses) {
  const int result = in_mpi<decltype(MPI_Waitall)>("PMPI_Waitall")(count, requests, statuses);
  const char* chosen = std::getenv("STAGEGPT_CORRUPT");
  constexpr int kMessages = 4;  // of an all-reduce among three, to each; the last is not passed on
  if (chosen != nullptr && std::strcmp(std::getenv("OMPI_COMM_WORLD_RANK"), chosen) == 0 &&
      last_received.calls == kMessages) {
    for (int i = 0; i < last_received.count; ++i) last_received.floats[i] *= -1;
  }
  return result;
}

std::atomic<bool> no_memory = false;

extern "C" int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  const char* scarce = std::getenv("STAGEGPT_NO_MEMORY");
  if ((flags & O_CREAT) != 0) no_memory = scarce != nullptr && std::strstr(path, scarce) != nullptr;
  return static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}

extern "C" void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  void* block = nullptr;
  if (no_memory || posix_memalign(&block, alignment, bytes) != 0) return nullptr;
  return block;
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
