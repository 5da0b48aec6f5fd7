#include "stage3_mpi_cuda/host_staged_communicator.h"

#include <deque>
#include <functional>
#include <utility>

#include "common/model/parameters.h"
#include "stage0_serial/cpu_backend.h"
#include "stage2_cuda/device_objects.h"
#include "stage3_mpi_cuda/pinned_memory_source.h"

namespace stagegpt::gpu {
namespace {

// What a call does with a tensor's copy on the host.
using HostCall = std::function<std::unique_ptr<Pending>(const Tensor& host)>;

// The bytes of some of a tensor's elements.
std::byte* begin_of(const Tensor& tensor, const ArenaRange& range) {
  return static_cast<std::byte*>(tensor.raw()) +
         range.begin * static_cast<std::int64_t>(size_of(tensor.dtype()));
}
std::size_t bytes_of(const Tensor& tensor, const ArenaRange& range) {
  return static_cast<std::size_t>(range.size()) * size_of(tensor.dtype());
}

// A tensor's way to the host, through a call there, and back. Waits for nothing unless it is told to.
class Passage final : public Pending {
 public:
  // Of the passages that have not begun their call. Calls begin in the order of passages, whichever copy a
  // rank sees done first: MPI wants the same order on all ranks.
  using Queue = std::deque<Passage*>;

  struct Plan {
    Tensor device, host;
    ArenaRange there, back;  // elements that are copied
    HostCall call;
  };

  Passage(Plan plan, StreamHandle compute, StreamHandle copies, Queue& queue)
      : plan_(std::move(plan)), copies_(copies), queue_(queue) {
    record(event_, compute);
    gpu::wait_for(copies, event_);  // the tensor is whole, and nobody reads what comes back into it
    copy_to_host(begin_of(plan_.host, plan_.there), begin_of(plan_.device, plan_.there),
                 bytes_of(plan_.device, plan_.there), copies);
    record(event_, copies);
    queue_.push_back(this);
  }

  // On the way out of an error, it may not have begun.
  ~Passage() override { std::erase(queue_, this); }
  Passage(const Passage&) = delete;
  Passage& operator=(const Passage&) = delete;

  bool progress() override {
    while (!queue_.empty() && is_done(queue_.front()->event_)) begin_first();
    if (!pending_ && !returning_) return false;
    if (!returning_ && pending_->progress()) bring_back();
    return returning_ && is_done(event_);
  }

  void wait() override {
    // Those behind it too: a rank that this one waits for may wait for them.
    while (!queue_.empty()) {
      gpu::wait_for(queue_.front()->event_);
      begin_first();
    }
    if (!returning_) {
      pending_->wait();
      bring_back();
    }
    gpu::wait_for(event_);
  }

 private:
  void begin_first() {
    Passage& first = *queue_.front();
    queue_.pop_front();
    first.pending_ = first.plan_.call(first.plan_.host);
  }

  void bring_back() {
    pending_.reset();
    copy_to_device(begin_of(plan_.device, plan_.back), begin_of(plan_.host, plan_.back),
                   bytes_of(plan_.device, plan_.back), copies_);
    record(event_, copies_);
    returning_ = true;
  }

  Plan plan_;
  StreamHandle copies_;
  Queue& queue_;
  Event event_;                       // the end of the last copy
  std::unique_ptr<Pending> pending_;  // on the host
  bool returning_ = false;            // or back
};

class HostStagedCommunicator final : public Communicator {
 public:
  HostStagedCommunicator(MpiGroup& group, CudaBackend& device, CommAlgorithm algorithm)
      : Communicator(group),
        group_(group),
        device_(device),
        host_(make_cpu_backend(1, CpuMatmul::naive, std::make_unique<PinnedMemorySource>())),
        hosts_(make_mpi_communicator(group, *host_, algorithm)) {}

  void broadcast(const Tensor& tensor, int root) override {
    check(leaving_.empty(), "communicator: a broadcast would overtake what is under way");
    const Tensor host = host_->allocate(tensor.dtype(), tensor.shape());
    const std::span<std::byte> bytes(static_cast<std::byte*>(host.raw()), host.bytes());
    if (rank() == root) device_.copy_to_host(bytes, tensor);
    hosts_->broadcast(host, root);
    if (rank() != root) device_.copy_from_host(tensor, bytes);
  }

  std::unique_ptr<Pending> all_reduce(const Tensor& tensor) override {
    return passage(tensor, all(tensor), all(tensor),
                   [this](const Tensor& host) { return hosts_->all_reduce(host); });
  }
  std::unique_ptr<Pending> reduce_scatter(const Tensor& tensor) override {
    return passage(tensor, all(tensor), own(tensor),
                   [this](const Tensor& host) { return hosts_->reduce_scatter(host); });
  }
  std::unique_ptr<Pending> all_gather(const Tensor& tensor) override {
    return passage(tensor, own(tensor), all(tensor),
                   [this](const Tensor& host) { return hosts_->all_gather(host); });
  }
  std::unique_ptr<Pending> send(const Tensor& tensor, int to) override {
    return passage(tensor, all(tensor), {},
                   [this, to](const Tensor& host) { return hosts_->send(host, to); });
  }
  std::unique_ptr<Pending> receive(const Tensor& tensor, int from) override {
    return passage(tensor, {}, all(tensor),
                   [this, from](const Tensor& host) { return hosts_->receive(host, from); });
  }

  void wait_all(const std::vector<std::unique_ptr<Pending>>& pending) override {
    const Watchdog::Waiting waiting(group_.watchdog());
    progress_until_done(pending);
  }

 private:
  static ArenaRange all(const Tensor& tensor) { return {0, tensor.numel()}; }
  ArenaRange own(const Tensor& tensor) const {
    const std::int64_t slice = own_slice(tensor).numel();
    return {rank() * slice, (rank() + 1) * slice};
  }

  std::unique_ptr<Pending> passage(const Tensor& tensor, ArenaRange there, ArenaRange back, HostCall call) {
    check(tensor.dtype() == DType::f32, "communicator: expected f32, not ", tensor.dtype());
    Tensor host = host_->allocate(tensor.dtype(), tensor.shape());
    return std::make_unique<Passage>(Passage::Plan{tensor, std::move(host), there, back, std::move(call)},
                                     device_.stream(), copies_, leaving_);
  }

  MpiGroup& group_;
  CudaBackend& device_;
  std::unique_ptr<Backend> host_;        // adds what a ring receives
  std::unique_ptr<Communicator> hosts_;  // stage 1's
  Stream copies_;
  Passage::Queue leaving_;
};

}  // namespace

std::unique_ptr<Communicator> make_host_staged_communicator(MpiGroup& group, CudaBackend& device,
                                                            CommAlgorithm algorithm) {
  return std::make_unique<HostStagedCommunicator>(group, device, algorithm);
}

}  // namespace stagegpt::gpu
