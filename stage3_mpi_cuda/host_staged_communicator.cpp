#include "stage3_mpi_cuda/host_staged_communicator.h"

#include <deque>
#include <functional>
#include <utility>

#include "common/model/parameters.h"
#include "common/tensor/caching_allocator.h"
#include "stage0_serial/cpu_backend.h"
#include "stage2_cuda/device_objects.h"

namespace stagegpt::gpu {
namespace {

// Copies to and from the device need no staging buffer.
class PinnedMemorySource final : public MemorySource {
 public:
  void* allocate(std::size_t bytes) override { return allocate_pinned(bytes); }
  void deallocate(void* block, std::size_t) noexcept override { deallocate_pinned(block); }
};

// The operation on the host copy of a tensor.
using HostCall = std::function<std::unique_ptr<Pending>(const Tensor& host)>;

// The address and the size in bytes of a range of a tensor's elements.
std::byte* begin_of(const Tensor& tensor, const ArenaRange& range) {
  return static_cast<std::byte*>(tensor.raw()) +
         range.begin * static_cast<std::int64_t>(size_of(tensor.dtype()));
}
std::size_t bytes_of(const Tensor& tensor, const ArenaRange& range) {
  return static_cast<std::size_t>(range.size()) * size_of(tensor.dtype());
}

// Copies a tensor to the host, runs a host operation on it, and copies the result back. Asynchronous until
// wait().
class StagedTransfer final : public Pending {
 public:
  // The transfers whose host operation has not started. Operations start in the order of this queue, even if
  // a later copy is done first: MPI requires the same order on all ranks.
  using Queue = std::deque<StagedTransfer*>;

  struct Plan {
    Tensor device, host;
    ArenaRange to_host, to_device;  // the elements that are copied
    HostCall call;
  };

  StagedTransfer(Plan plan, StreamHandle compute, StreamHandle copies, Queue& queue)
      : plan_(std::move(plan)), copies_(copies), queue_(queue) {
    record(event_, compute);
    gpu::wait_for(copies, event_);  // after the backend's work that writes or reads the tensor
    copy_to_host(begin_of(plan_.host, plan_.to_host), begin_of(plan_.device, plan_.to_host),
                 bytes_of(plan_.device, plan_.to_host), copies);
    record(event_, copies);
    queue_.push_back(this);
  }

  // After an error, its operation may not have started.
  ~StagedTransfer() override { std::erase(queue_, this); }
  StagedTransfer(const StagedTransfer&) = delete;
  StagedTransfer& operator=(const StagedTransfer&) = delete;

  bool progress() override {
    while (!queue_.empty() && is_done(queue_.front()->event_)) start_first();
    if (!pending_ && !returning_) return false;
    if (!returning_ && pending_->progress()) copy_back();
    return returning_ && is_done(event_);
  }

  void wait() override {
    // Starts the later operations too: a rank that this one waits for may wait for them.
    while (!queue_.empty()) {
      gpu::wait_for(queue_.front()->event_);
      start_first();
    }
    if (!returning_) {
      pending_->wait();
      copy_back();
    }
    gpu::wait_for(event_);
  }

 private:
  void start_first() {
    StagedTransfer& first = *queue_.front();
    queue_.pop_front();
    first.pending_ = first.plan_.call(first.plan_.host);
  }

  void copy_back() {
    pending_.reset();
    copy_to_device(begin_of(plan_.device, plan_.to_device), begin_of(plan_.host, plan_.to_device),
                   bytes_of(plan_.device, plan_.to_device), copies_);
    record(event_, copies_);
    returning_ = true;
  }

  Plan plan_;
  StreamHandle copies_;
  Queue& queue_;
  Event event_;                       // recorded after the last copy
  std::unique_ptr<Pending> pending_;  // the host operation
  bool returning_ = false;            // the copy back has started
};

class HostStagedCommunicator final : public Communicator {
 public:
  HostStagedCommunicator(CudaBackend& device, std::shared_ptr<Backend> host,
                         std::unique_ptr<Communicator> host_communicator, Watchdog& watchdog)
      : Communicator(host_communicator->group()),
        device_(device),
        host_(std::move(host)),
        host_communicator_(std::move(host_communicator)),
        watchdog_(watchdog) {}

  std::unique_ptr<Communicator> split(int color, int key) override {
    return std::make_unique<HostStagedCommunicator>(device_, host_, host_communicator_->split(color, key),
                                                    watchdog_);
  }

  void broadcast(const Tensor& tensor, int root) override {
    check(queue_.empty(), "communicator: broadcast() while other operations are in progress");
    const Tensor host = host_->allocate(tensor.dtype(), tensor.shape());
    const std::span<std::byte> bytes(static_cast<std::byte*>(host.raw()), host.bytes());
    if (rank() == root) device_.copy_to_host(bytes, tensor);
    host_communicator_->broadcast(host, root);
    if (rank() != root) device_.copy_from_host(tensor, bytes);
  }

  std::unique_ptr<Pending> all_reduce(const Tensor& tensor) override {
    require_f32(tensor);
    return transfer(tensor, all(tensor), all(tensor),
                    [this](const Tensor& host) { return host_communicator_->all_reduce(host); });
  }
  std::unique_ptr<Pending> reduce_scatter(const Tensor& tensor) override {
    require_f32(tensor);
    return transfer(tensor, all(tensor), own(tensor),
                    [this](const Tensor& host) { return host_communicator_->reduce_scatter(host); });
  }
  std::unique_ptr<Pending> all_gather(const Tensor& tensor) override {
    return transfer(tensor, own(tensor), all(tensor),
                    [this](const Tensor& host) { return host_communicator_->all_gather(host); });
  }
  std::unique_ptr<Pending> send(const Tensor& tensor, int to) override {
    return transfer(tensor, all(tensor), {},
                    [this, to](const Tensor& host) { return host_communicator_->send(host, to); });
  }
  std::unique_ptr<Pending> receive(const Tensor& tensor, int from) override {
    return transfer(tensor, {}, all(tensor),
                    [this, from](const Tensor& host) { return host_communicator_->receive(host, from); });
  }

  void wait_all(const std::vector<std::unique_ptr<Pending>>& pending) override {
    const Watchdog::Waiting waiting(watchdog_);
    progress_until_done(pending);
  }

 private:
  // Now, not when the operation on the host starts.
  static void require_f32(const Tensor& tensor) {
    check(tensor.dtype() == DType::f32, "communicator: expected f32, not ", tensor.dtype());
  }
  static ArenaRange all(const Tensor& tensor) { return {0, tensor.numel()}; }
  ArenaRange own(const Tensor& tensor) const {
    const std::int64_t slice = own_slice(tensor).numel();
    return {rank() * slice, (rank() + 1) * slice};
  }

  std::unique_ptr<Pending> transfer(const Tensor& tensor, ArenaRange to_host, ArenaRange to_device,
                                    HostCall call) {
    Tensor host = host_->allocate(tensor.dtype(), tensor.shape());
    return std::make_unique<StagedTransfer>(
        StagedTransfer::Plan{tensor, std::move(host), to_host, to_device, std::move(call)}, device_.stream(),
        copies_, queue_);
  }

  CudaBackend& device_;
  std::shared_ptr<Backend> host_;                    // does the additions of the ring
  std::unique_ptr<Communicator> host_communicator_;  // stage 1's communicator
  Watchdog& watchdog_;
  Stream copies_;
  StagedTransfer::Queue queue_;
};

}  // namespace

std::unique_ptr<Communicator> make_host_staged_communicator(MpiGroup& group, CudaBackend& device,
                                                            CommAlgorithm algorithm, const Network& network) {
  const std::shared_ptr<Backend> host =
      make_cpu_backend(1, CpuMatmul::naive, std::make_unique<PinnedMemorySource>());
  auto host_communicator = make_mpi_communicator(group, *host, algorithm, network);
  return std::make_unique<HostStagedCommunicator>(device, host, std::move(host_communicator),
                                                  group.watchdog());
}

}  // namespace stagegpt::gpu
