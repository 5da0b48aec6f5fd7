#include "stage1_mpi/mpi_communicator.h"

#include <span>
#include <vector>

#include "stage1_mpi/mpi_check.h"
#include "stage1_mpi/ring.h"

namespace stagegpt {
namespace {

std::span<std::byte> bytes_of(const Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.raw()), tensor.bytes()};
}

// The type of reductions.
MPI_Datatype only_f32(const Tensor& tensor) {
  check(tensor.dtype() == DType::f32, "communicator: expected f32, not ", tensor.dtype());
  return MPI_FLOAT;
}

// Non-blocking operations of the MPI library.
class Requests final : public Pending {
 public:
  // A new request, to be passed to an MPI call.
  MPI_Request* add() { return &requests_.emplace_back(MPI_REQUEST_NULL); }
  // When all requests are done, `from` is copied to `into`. Both tensors are kept until then.
  void copy_when_done(Backend& backend, Tensor into, Tensor from) {
    backend_ = &backend;
    into_ = std::move(into);
    from_ = std::move(from);
  }

  void wait() override {
    check_mpi(MPI_Waitall(static_cast<int>(requests_.size()), requests_.data(), MPI_STATUSES_IGNORE),
              "MPI_Waitall");
    finish();
  }
  bool progress() override {
    int all = 0;
    check_mpi(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &all, MPI_STATUSES_IGNORE),
              "MPI_Testall");
    if (all) finish();
    return all != 0;
  }

 private:
  void finish() {
    if (backend_ != nullptr) backend_->copy(into_, from_);
    backend_ = nullptr;
  }

  std::vector<MPI_Request> requests_;
  Backend* backend_ = nullptr;
  Tensor into_, from_;
};

// Tells the watchdog when this rank waits.
class Watched final : public Pending {
 public:
  Watched(Watchdog& watchdog, std::unique_ptr<Pending> pending)
      : watchdog_(watchdog), pending_(std::move(pending)) {}
  void wait() override {
    const Watchdog::Waiting waiting(watchdog_);
    pending_->wait();
  }
  bool progress() override { return pending_->progress(); }

 private:
  Watchdog& watchdog_;
  std::unique_ptr<Pending> pending_;
};

// MPI accesses memory immediately, so each call first waits for the backend's work on it.
class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(MpiGroup& group, Backend& backend, CommAlgorithm algorithm)
      : Communicator(group), group_(group), backend_(backend), algorithm_(algorithm) {
    check_mpi(MPI_Comm_dup(group.comm(), &comm_), "MPI_Comm_dup");
  }
  // Owns its group.
  MpiCommunicator(std::unique_ptr<MpiGroup> group, Backend& backend, CommAlgorithm algorithm)
      : MpiCommunicator(*group, backend, algorithm) {
    own_group_ = std::move(group);
  }
  ~MpiCommunicator() override { MPI_Comm_free(&comm_); }

  std::unique_ptr<Communicator> split(int color, int key) override {
    return std::make_unique<MpiCommunicator>(group_.part(color, key), backend_, algorithm_);
  }

  void broadcast(const Tensor& tensor, int root) override {
    backend_.synchronize();
    const Watchdog::Waiting waiting(group_.watchdog());
    for_each_message(bytes_of(tensor), [&](std::byte* data, int count) {
      check_mpi(MPI_Bcast(data, count, MPI_BYTE, root, comm_), "MPI_Bcast");
    });
  }

  std::unique_ptr<Pending> all_reduce(const Tensor& tensor) override {
    backend_.synchronize();
    if (algorithm_ == CommAlgorithm::ring) return ring(RingKind::all_reduce, tensor);
    auto requests = std::make_unique<Requests>();
    const std::span elements(tensor.data<float>(), static_cast<std::size_t>(tensor.numel()));
    for_each_message(elements, [&](float* data, int count) {
      check_mpi(MPI_Iallreduce(MPI_IN_PLACE, data, count, only_f32(tensor), MPI_SUM, comm_, requests->add()),
                "MPI_Iallreduce");
    });
    return watched(std::move(requests));
  }

  std::unique_ptr<Pending> reduce_scatter(const Tensor& tensor) override {
    backend_.synchronize();
    if (algorithm_ == CommAlgorithm::ring) return ring(RingKind::reduce_scatter, tensor);
    auto requests = std::make_unique<Requests>();
    const Tensor own = own_slice(tensor), sum = backend_.allocate(tensor.dtype(), own.shape());
    check_mpi(MPI_Ireduce_scatter_block(tensor.data<float>(), sum.data<float>(), slice_count(own),
                                        only_f32(tensor), MPI_SUM, comm_, requests->add()),
              "MPI_Ireduce_scatter_block");
    requests->copy_when_done(backend_, own, sum);
    return watched(std::move(requests));
  }

  std::unique_ptr<Pending> all_gather(const Tensor& tensor) override {
    backend_.synchronize();
    const bool is_short = own_slice(tensor).bytes() <= kShortSlice;
    if (algorithm_ == CommAlgorithm::ring && !is_short) return ring(RingKind::all_gather, tensor);
    auto requests = std::make_unique<Requests>();
    const MPI_Datatype type = mpi_type(tensor.dtype());
    check_mpi(MPI_Iallgather(MPI_IN_PLACE, 0, type, tensor.raw(), slice_count(own_slice(tensor)), type, comm_,
                             requests->add()),
              "MPI_Iallgather");
    return watched(std::move(requests));
  }

  void wait_all(const std::vector<std::unique_ptr<Pending>>& pending) override {
    const Watchdog::Waiting waiting(group_.watchdog());
    progress_until_done(pending);
  }

  std::unique_ptr<Pending> send(const Tensor& tensor, int to) override {
    backend_.synchronize();
    auto requests = std::make_unique<Requests>();
    for_each_message(bytes_of(tensor), [&](std::byte* data, int count) {
      check_mpi(MPI_Isend(data, count, MPI_BYTE, to, kPointToPoint, comm_, requests->add()), "MPI_Isend");
    });
    return watched(std::move(requests));
  }

  std::unique_ptr<Pending> receive(const Tensor& tensor, int from) override {
    backend_.synchronize();
    auto requests = std::make_unique<Requests>();
    for_each_message(bytes_of(tensor), [&](std::byte* data, int count) {
      check_mpi(MPI_Irecv(data, count, MPI_BYTE, from, kPointToPoint, comm_, requests->add()), "MPI_Irecv");
    });
    return watched(std::move(requests));
  }

 private:
  // Message tags. MPI guarantees tags up to 32767.
  static constexpr int kPointToPoint = 0, kFirstRing = 1, kRings = 1 << 14;
  // Bytes of a slice that the library gathers: its latency is that of log₂N messages, a ring's of N-1.
  static constexpr std::size_t kShortSlice = 1024;

  // These collectives cannot be split into several messages, because the slices of a part would not be
  // contiguous.
  static int slice_count(const Tensor& slice) {
    if (slice.numel() > static_cast<std::int64_t>(kMessage)) {
      throw std::runtime_error(concat("--comm-algorithm mpi: a rank's slice has ", slice.numel(),
                                      " elements, more than MPI can count; use --comm-algorithm ring"));
    }
    return static_cast<int>(slice.numel());
  }

  std::unique_ptr<Pending> watched(std::unique_ptr<Pending> pending) {
    return std::make_unique<Watched>(group_.watchdog(), std::move(pending));
  }

  std::unique_ptr<Pending> ring(RingKind kind, const Tensor& tensor) {
    if (kind != RingKind::all_reduce) own_slice(tensor);
    const int tag = kFirstRing + rings_;
    rings_ = (rings_ + 1) % kRings;
    return watched(std::make_unique<Ring>(RingPlace{comm_, tag, rank(), size()}, backend_, kind, tensor));
  }

  std::unique_ptr<MpiGroup> own_group_;
  MpiGroup& group_;
  Backend& backend_;
  CommAlgorithm algorithm_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  int rings_ = 0;  // rings started so far, modulo kRings; the same on all ranks
};

}  // namespace

std::unique_ptr<Communicator> make_mpi_communicator(MpiGroup& group, Backend& backend,
                                                    CommAlgorithm algorithm, const Network& network) {
  return slowed(network, std::make_unique<MpiCommunicator>(group, backend, algorithm));
}

}  // namespace stagegpt
