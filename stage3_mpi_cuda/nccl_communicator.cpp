#include "stage3_mpi_cuda/nccl_communicator.h"

#include <cuda_runtime.h>
#include <nccl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "common/comm/agreement.h"
#include "stage2_cuda/device_objects.h"
#include "stage3_mpi_cuda/nccl_debug_file.h"

static_assert(NCCL_VERSION_CODE >= NCCL_VERSION(2, 18, 0), "NCCL 2.18 or newer is needed");

namespace stagegpt::gpu {
namespace {

// Throws std::runtime_error with NCCL's message.
void check_nccl(ncclResult_t code, const char* call) {
  if (code == ncclSuccess) return;
  throw std::runtime_error(concat(call, ": ", ncclGetErrorString(code), "; set NCCL_DEBUG=WARN for details"));
}

// Polls for asynchronous errors, such as a lost connection, after which kernels would wait forever. On an
// error it ends this process, and the launcher ends all ranks.
class ErrorWatch {
 public:
  ErrorWatch(ncclComm_t comm, int rank) : comm_(comm), rank_(rank), thread_([this] { watch(); }) {}
  ~ErrorWatch() {
    {
      const std::lock_guard lock(mutex_);
      end_ = true;
    }
    ended_.notify_one();
    thread_.join();
  }
  ErrorWatch(const ErrorWatch&) = delete;
  ErrorWatch& operator=(const ErrorWatch&) = delete;

 private:
  void watch() {
    constexpr auto kInterval = std::chrono::milliseconds(250);
    std::unique_lock lock(mutex_);
    while (!ended_.wait_for(lock, kInterval, [this] { return end_; })) {
      ncclResult_t error = ncclSuccess;
      if (ncclCommGetAsyncError(comm_, &error) != ncclSuccess) continue;
      if (error == ncclSuccess) continue;
      std::fprintf(stderr, "%s: rank %d: NCCL: %s (set NCCL_DEBUG=WARN for details): ending all ranks\n",
                   program_invocation_short_name, rank_, ncclGetErrorString(error));
      _exit(1);
    }
  }

  ncclComm_t comm_;
  int rank_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool end_ = false;
  std::thread thread_;
};

// An operation on NCCL's stream. wait() makes the backend's stream wait for it, not the host.
class OnStream final : public Pending {
 public:
  OnStream(StreamHandle compute, StreamHandle nccl) : compute_(compute) { record(done_, nccl); }
  void wait() override { gpu::wait_for(compute_, done_); }
  bool progress() override { return is_done(done_); }

 private:
  StreamHandle compute_;
  Event done_;
};

// How many ranks share a unique id. The process that makes an id is asked by all of them when NCCL starts, so
// with a single id the start takes time in proportion to N.
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 23, 0)
constexpr int kRanksPerId = 128;
#else
constexpr int kRanksPerId = std::numeric_limits<int>::max();
ncclResult_t ncclCommInitRankScalable(ncclComm_t*, int, int, int, ncclUniqueId*, ncclConfig_t*) {
  return ncclInvalidUsage;
}
#endif

// The ids of ranks 0, kRanksPerId, 2·kRanksPerId, ….
std::vector<ncclUniqueId> unique_ids(RankGroup& group) {
  ncclUniqueId own = {};
  agree(group, [&] {
    if (group.rank() % kRanksPerId == 0) check_nccl(ncclGetUniqueId(&own), "ncclGetUniqueId");
  });
  std::vector<ncclUniqueId> ids;
  for (int rank = 0; const ncclUniqueId& id : gather(group, own)) {
    if (rank++ % kRanksPerId == 0) ids.push_back(id);
  }
  return ids;
}

ncclComm_t connect(RankGroup& group) {
  std::vector<ncclUniqueId> ids = unique_ids(group);
  const int rank = group.rank(), size = group.size(), count = static_cast<int>(ids.size());
  ncclComm_t comm = nullptr;
  group.enter("start of NCCL");
  if (count == 1) {
    check_nccl(ncclCommInitRank(&comm, size, ids[0], rank), "ncclCommInitRank");
  } else {
    check_nccl(ncclCommInitRankScalable(&comm, size, rank, count, ids.data(), /*config=*/nullptr),
               "ncclCommInitRankScalable");
  }
  group.enter(kUnwatched);
  return comm;
}

// A bucket is one slice of the arena, so each collective is one NCCL call and one kernel.
class NcclCommunicator final : public Communicator {
 public:
  // Owns `comm`, whose ranks are those of the group.
  NcclCommunicator(MpiGroup& group, CudaBackend& device, ncclComm_t comm)
      : Communicator(group),
        group_(group),
        device_(device),
        comm_(comm),
        watch_(std::in_place, comm, rank()) {}
  // Owns its group too.
  NcclCommunicator(std::unique_ptr<MpiGroup> group, CudaBackend& device, ncclComm_t comm)
      : NcclCommunicator(*group, device, comm) {
    own_group_ = std::move(group);
  }
  // After an error, other ranks may never do their part of pending operations, so they are aborted.
  ~NcclCommunicator() override {
    watch_.reset();
    if (std::uncaught_exceptions() > exceptions_) {
      ncclCommAbort(comm_);
      return;
    }
    try {
      group().barrier();  // so that no rank sees the end of another rank's communicator as an error
    } catch (const std::exception&) {
      // A destructor must not throw. The launcher reports the error.
    }
    ncclCommDestroy(comm_);
  }

  // NCCL permits no operation in progress meanwhile.
  std::unique_ptr<Communicator> split(int color, int key) override {
    std::unique_ptr<MpiGroup> part = group_.part(color, key);
    gpu::synchronize(stream());
    ncclComm_t comm = nullptr;
    group_.enter("start of NCCL");
    check_nccl(ncclCommSplit(comm_, color, key, &comm, /*config=*/nullptr), "ncclCommSplit");
    group_.enter(kUnwatched);
    return std::make_unique<NcclCommunicator>(std::move(part), device_, comm);
  }

  void broadcast(const Tensor& tensor, int root) override {
    start();
    check_nccl(ncclBroadcast(tensor.raw(), tensor.raw(), tensor.bytes(), ncclUint8, root, comm_, stream()),
               "ncclBroadcast");
    pending()->wait();
  }

  std::unique_ptr<Pending> all_reduce(const Tensor& tensor) override {
    start();
    check_nccl(
        ncclAllReduce(floats(tensor), floats(tensor), count(tensor), ncclFloat, ncclSum, comm_, stream()),
        "ncclAllReduce");
    return pending();
  }

  std::unique_ptr<Pending> reduce_scatter(const Tensor& tensor) override {
    start();
    const Tensor own = own_slice(tensor);
    check_nccl(
        ncclReduceScatter(floats(tensor), floats(own), count(own), ncclFloat, ncclSum, comm_, stream()),
        "ncclReduceScatter");
    return pending();
  }

  std::unique_ptr<Pending> all_gather(const Tensor& tensor) override {
    start();
    const Tensor own = own_slice(tensor);
    check_nccl(ncclAllGather(own.raw(), tensor.raw(), own.bytes(), ncclUint8, comm_, stream()),
               "ncclAllGather");
    return pending();
  }

  std::unique_ptr<Pending> send(const Tensor& tensor, int to) override {
    start();
    check_nccl(ncclSend(tensor.raw(), tensor.bytes(), ncclUint8, to, comm_, stream()), "ncclSend");
    return pending();
  }

  std::unique_ptr<Pending> receive(const Tensor& tensor, int from) override {
    start();
    check_nccl(ncclRecv(tensor.raw(), tensor.bytes(), ncclUint8, from, comm_, stream()), "ncclRecv");
    return pending();
  }

  // In an NCCL group: separate calls would deadlock, because each would wait for the other rank's call.
  std::unique_ptr<Pending> start_exchange(const Tensor& out, const Tensor& in, int with) override {
    start();
    check_nccl(ncclGroupStart(), "ncclGroupStart");
    check_nccl(ncclSend(out.raw(), out.bytes(), ncclUint8, with, comm_, stream()), "ncclSend");
    check_nccl(ncclRecv(in.raw(), in.bytes(), ncclUint8, with, comm_, stream()), "ncclRecv");
    check_nccl(ncclGroupEnd(), "ncclGroupEnd");
    return pending();
  }

 private:
  static float* floats(const Tensor& tensor) { return tensor.data<float>(); }
  static std::size_t count(const Tensor& tensor) { return static_cast<std::size_t>(tensor.numel()); }
  cudaStream_t stream() const { return static_cast<cudaStream_t>(static_cast<StreamHandle>(stream_)); }

  // Makes NCCL's stream wait for all work that the backend has been given so far.
  void start() {
    record(begin_, device_.stream());
    gpu::wait_for(stream_, begin_);
  }
  std::unique_ptr<Pending> pending() const { return std::make_unique<OnStream>(device_.stream(), stream_); }

  std::unique_ptr<MpiGroup> own_group_;
  MpiGroup& group_;
  CudaBackend& device_;
  Stream stream_;
  Event begin_;
  ncclComm_t comm_;
  std::optional<ErrorWatch> watch_;
  int exceptions_ = std::uncaught_exceptions();
};

}  // namespace

std::string nccl_unavailable_reason() { return ""; }

std::unique_ptr<Communicator> make_nccl_communicator(MpiGroup& group, CudaBackend& device) {
  setenv("NCCL_DEBUG_FILE", nccl_debug_file().c_str(), /*overwrite=*/0);
  return std::make_unique<NcclCommunicator>(group, device, connect(group));
}

}  // namespace stagegpt::gpu
