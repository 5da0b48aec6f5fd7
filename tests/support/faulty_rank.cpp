// Preloaded into a program that mpirun starts, to inject faults:
//   STAGEGPT_EARLY_EXIT=RANK   the rank exits with 0 after one second
//   SIGRTMIN                   the thread that receives it sleeps forever; other threads continue
//   STAGEGPT_SLOW_DISK=MS      each fsync in a checkpoint takes MS milliseconds longer
//   STAGEGPT_NODES=N           the ranks are divided into N nodes, which share no memory
//   STAGEGPT_FREE_WAITS=1      MPI_Comm_free waits for all ranks of the communicator
//   STAGEGPT_CORRUPT=RANK      at the rank, the last message of each all-reduce of one chunk among three
//                              ranks arrives with inverted signs
//   STAGEGPT_NO_MEMORY=TEXT    aligned_alloc fails after a file whose path contains TEXT was created
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

// An integer variable; 0 if it is not set.
int number(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? 0 : std::atoi(text);
}

// A function of the MPI library. It is looked up at run time: mpirun itself loads this library too, so that
// it must not be linked with MPI.
template <class Function>
Function* in_mpi(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

extern "C" void hang(int) {
  while (true) pause();
}

// Replaces fsync of the C library.
extern "C" int fsync(int file) {
  char path[PATH_MAX] = {};
  const std::string name = "/proc/self/fd/" + std::to_string(file);
  const bool counts = readlink(name.c_str(), path, sizeof path - 1) > 0 && std::strstr(path, "/checkpoints/");
  if (counts) std::this_thread::sleep_for(std::chrono::milliseconds(number("STAGEGPT_SLOW_DISK")));
  return static_cast<int>(syscall(SYS_fsync, file));
}

// Replaces MPI_Comm_split_type of the MPI library.
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

// The last MPI_Irecv: its buffer and tag, and the number of calls with this tag.
struct LastReceived {
  float* floats = nullptr;
  int count = 0, tag = -1, calls = 0;
};
LastReceived last_received;

// A collective call, which may wait for all ranks.
extern "C" int MPI_Comm_free(MPI_Comm* comm) {
  if (number("STAGEGPT_FREE_WAITS") != 0) in_mpi<decltype(MPI_Barrier)>("PMPI_Barrier")(*comm);
  return in_mpi<decltype(MPI_Comm_free)>("PMPI_Comm_free")(comm);
}

extern "C" int MPI_Irecv(void* buffer, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
                         MPI_Request* request) {
  const int calls =
      tag == last_received.tag ? last_received.calls + 1 : 1;  // each all-reduce has its own tag
  last_received = {static_cast<float*>(buffer), count, tag, calls};
  return in_mpi<decltype(MPI_Irecv)>("PMPI_Irecv")(buffer, count, type, from, tag, comm, request);
}

extern "C" int MPI_Waitall(int count, MPI_Request* requests, MPI_Status* statuses) {
  const int result = in_mpi<decltype(MPI_Waitall)>("PMPI_Waitall")(count, requests, statuses);
  const char* chosen = std::getenv("STAGEGPT_CORRUPT");
  constexpr int kMessages = 4;  // received by each of three ranks in an all-reduce; the last is not passed on
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
  std::signal(SIGRTMIN, hang);
  const char *rank = std::getenv("OMPI_COMM_WORLD_RANK"), *chosen = std::getenv("STAGEGPT_EARLY_EXIT");
  if (rank == nullptr || chosen == nullptr || std::strcmp(rank, chosen) != 0) return false;
  std::thread([] {
    std::this_thread::sleep_for(std::chrono::seconds(1));
    _exit(0);
  }).detach();
  return true;
}();

}  // namespace
