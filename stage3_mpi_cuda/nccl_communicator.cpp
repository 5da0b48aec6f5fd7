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
#include <mutex>
#include <thread>

#include "common/comm/agreement.h"
#include "stage2_cuda/device_objects.h"
#include "stage3_mpi_cuda/nccl_debug_file.h"

static_assert(NCCL_VERSION_CODE >= NCCL_VERSION(2, 18, 0), "NCCL 2.18 or newer is needed");

namespace stagegpt::gpu {
namespace {

// Throws std::runtime_error with NCCL's own words.
void check_nccl(ncclResult_t code, const char* call) {
  if (code == ncclSuccess) return;
  throw std::runtime_error(concat(call, ": ", ncclGetErrorString(code), "; NCCL_DEBUG=WARN tells more"));
}

// Looks for errors that come up while nobody is in a call, such as a connection that has been lost: kernels
// then wait for ever. Ends this process, and so all ranks.
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
      std::fprintf(stderr, "%s: rank %d: NCCL: %s; NCCL_DEBUG=WARN tells more: ending all ranks\n",
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

// A call on NCCL's stream. Who waits for it is the backend's stream, not the host.
class OnStream final : public Pending {
 public:
  OnStream(StreamHandle compute, StreamHandle nccl) : compute_(compute) { record(done_, nccl); }
  void wait() override { gpu::wait_for(compute_, done_); }
  bool progress() override { return is_done(done_); }

 private:
  StreamHandle compute_;
  Event done_;
};

// A bucket is one slice of the arena, so each collective is one call, and one kernel.
class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(MpiGroup& group, CudaBackend& device) : Communicator(group), device_(device) {
    setenv("NCCL_DEBUG_FILE", nccl_debug_file().c_str(), /*overwrite=*/0);
    ncclUniqueId id = {};
    on_root(group, [&] { check_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId"); });
    id = from_root(group, id);
    group.enter("start of NCCL");
    check_nccl(ncclCommInitRank(&comm_, size(), id, rank()), "ncclCommInitRank");
    group.enter(kUnwatched);
    watch_.emplace(comm_, rank());
  }
  // On the way out of an error, others may never do their part of what is under way.
  ~NcclCommunicator() override {
    watch_.reset();
    if (std::uncaught_exceptions() > exceptions_) {
      ncclCommAbort(comm_);
      return;
    }
    try {
      group().barrier();  // nobody takes the end of another's for an error
    } catch (const std::exception&) {
      // A destructor cannot tell: the launcher does.
    }
    ncclCommDestroy(comm_);
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
    check_nccl(ncclAllGather(floats(own), floats(tensor), count(own), ncclFloat, comm_, stream()),
               "ncclAllGather");
    return pending();
  }

  std::unique_ptr<Pending> send(const Tensor& tensor, int to) override {
    start();
    check_nccl(ncclSend(floats(tensor), count(tensor), ncclFloat, to, comm_, stream()), "ncclSend");
    return pending();
  }

  std::unique_ptr<Pending> receive(const Tensor& tensor, int from) override {
    start();
    check_nccl(ncclRecv(floats(tensor), count(tensor), ncclFloat, from, comm_, stream()), "ncclRecv");
    return pending();
  }

  // In a group: one after the other, each would wait for the other rank's.
  void exchange(const Tensor& out, const Tensor& in, int with) override {
    start();
    check_nccl(ncclGroupStart(), "ncclGroupStart");
    check_nccl(ncclSend(floats(out), count(out), ncclFloat, with, comm_, stream()), "ncclSend");
    check_nccl(ncclRecv(floats(in), count(in), ncclFloat, with, comm_, stream()), "ncclRecv");
    check_nccl(ncclGroupEnd(), "ncclGroupEnd");
    pending()->wait();
  }

 private:
  static float* floats(const Tensor& tensor) { return tensor.data<float>(); }
  static std::size_t count(const Tensor& tensor) { return static_cast<std::size_t>(tensor.numel()); }
  cudaStream_t stream() const { return static_cast<cudaStream_t>(static_cast<StreamHandle>(stream_)); }

  // What comes next on NCCL's stream sees what the backend has been asked for so far.
  void start() {
    record(begin_, device_.stream());
    gpu::wait_for(stream_, begin_);
  }
  std::unique_ptr<Pending> pending() const { return std::make_unique<OnStream>(device_.stream(), stream_); }

  CudaBackend& device_;
  Stream stream_;
  Event begin_;
  ncclComm_t comm_ = nullptr;
  std::optional<ErrorWatch> watch_;
  int exceptions_ = std::uncaught_exceptions();
};

}  // namespace

std::string why_no_nccl() { return ""; }

std::unique_ptr<Communicator> make_nccl_communicator(MpiGroup& group, CudaBackend& device) {
  return std::make_unique<NcclCommunicator>(group, device);
}

}  // namespace stagegpt::gpu
