#include "common/profile/recorded_communicator.h"

#include <utility>

namespace stagegpt {
namespace {

class RecordedGroup final : public RankGroup {
 public:
  RecordedGroup(Timeline& timeline, RankGroup& group) : timeline_(timeline), group_(group) {}
  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }
  std::string host(int rank) const override { return group_.host(rank); }

  void barrier() override {
    const Recorded span(several(), "barrier", SpanKind::message);
    group_.barrier();
  }
  void broadcast(std::span<std::byte> bytes, int root) override {
    const Recorded span(several(), "broadcast (host)", SpanKind::message, size_of(bytes));
    group_.broadcast(bytes, root);
  }
  void all_gather(std::span<const std::byte> own, std::span<std::byte> all) override {
    const Recorded span(several(), "all_gather (host)", SpanKind::message, size_of(own));
    group_.all_gather(own, all);
  }
  void enter(const char* phase) override {
    timeline_.enter(phase);
    group_.enter(phase);
  }
  void beat() override { group_.beat(); }
  void while_root_works(const std::function<void()>& body, const Help& help) override {
    group_.while_root_works(body, help);
  }
  void ask_others(const Request& request) override { group_.ask_others(request); }
  void send(std::span<const std::byte> bytes, int to) override {
    const Recorded span(&timeline_, "send (host)", SpanKind::message, size_of(bytes), to);
    group_.send(bytes, to);
  }
  void receive(std::span<std::byte> bytes, int from) override {
    const Recorded span(&timeline_, "receive (host)", SpanKind::message, size_of(bytes), from);
    group_.receive(bytes, from);
  }

 private:
  static double size_of(std::span<const std::byte> bytes) { return static_cast<double>(bytes.size()); }
  // A single process sends nothing.
  Timeline* several() const { return group_.size() > 1 ? &timeline_ : nullptr; }

  Timeline& timeline_;
  RankGroup& group_;
};

// The names of an operation's spans.
struct Names {
  const char *operation, *wait, *progress;
};
constexpr Names kAllReduce{"all_reduce", "wait: all_reduce", "progress: all_reduce"};
constexpr Names kReduceScatter{"reduce_scatter", "wait: reduce_scatter", "progress: reduce_scatter"};
constexpr Names kAllGather{"all_gather", "wait: all_gather", "progress: all_gather"};
constexpr Names kSend{"send", "wait: send", "progress: send"};
constexpr Names kReceive{"receive", "wait: receive", "progress: receive"};

class RecordedPending final : public Pending {
 public:
  // `waiting`: whether the host waits for all operations, and has a span for this.
  RecordedPending(Timeline& timeline, Names names, const Tensor& tensor, int peer, const bool& waiting)
      : timeline_(timeline), names_(names), waiting_(waiting) {
    span_.name = names.operation;
    span_.kind = SpanKind::collective;
    span_.work.bytes = static_cast<double>(tensor.bytes());
    span_.peer = peer;
    span_.begin = Timeline::now();
  }
  void begun(std::unique_ptr<Pending> pending) { pending_ = std::move(pending); }

  void wait() override {
    {
      const Recorded span(&timeline_, names_.wait, SpanKind::message, span_.work.bytes, span_.peer);
      pending_->wait();
    }
    ended();
  }
  bool progress() override {
    if (!timeline_.recording()) return pending_->progress();
    const std::int64_t begin = Timeline::now();
    const bool done = pending_->progress();
    const std::int64_t end = Timeline::now();
    constexpr std::int64_t kShown = 5000;  // ns; shorter calls have done nothing but ask
    if (!waiting_ && end - begin >= kShown) {
      timeline_.add({.name = names_.progress, .kind = SpanKind::message, .begin = begin, .end = end});
    }
    if (done) ended();
    return done;
  }

 private:
  void ended() {
    if (span_.end != 0) return;
    span_.end = Timeline::now();
    timeline_.add(span_);
  }

  Timeline& timeline_;
  Names names_;
  const bool& waiting_;
  TimelineSpan span_;
  std::unique_ptr<Pending> pending_;
};

class RecordedCommunicator final : public Communicator {
 public:
  RecordedCommunicator(std::unique_ptr<RecordedGroup> group, Timeline& timeline,
                       std::unique_ptr<Communicator> communicator)
      : Communicator(*group),
        recorded_group_(std::move(group)),
        timeline_(timeline),
        communicator_(std::move(communicator)) {}

  void broadcast(const Tensor& tensor, int root) override {
    const Recorded span(size() > 1 ? &timeline_ : nullptr, "broadcast", SpanKind::message,
                        static_cast<double>(tensor.bytes()));
    communicator_->broadcast(tensor, root);
  }
  std::unique_ptr<Pending> all_reduce(const Tensor& tensor) override {
    return begin(kAllReduce, tensor, -1, [&] { return communicator_->all_reduce(tensor); });
  }
  std::unique_ptr<Pending> reduce_scatter(const Tensor& tensor) override {
    return begin(kReduceScatter, tensor, -1, [&] { return communicator_->reduce_scatter(tensor); });
  }
  std::unique_ptr<Pending> all_gather(const Tensor& tensor) override {
    return begin(kAllGather, tensor, -1, [&] { return communicator_->all_gather(tensor); });
  }
  std::unique_ptr<Pending> send(const Tensor& tensor, int to) override {
    return begin(kSend, tensor, to, [&] { return communicator_->send(tensor, to); });
  }
  std::unique_ptr<Pending> receive(const Tensor& tensor, int from) override {
    return begin(kReceive, tensor, from, [&] { return communicator_->receive(tensor, from); });
  }
  void exchange(const Tensor& out, const Tensor& in, int with) override {
    const Recorded span(&timeline_, "exchange", SpanKind::message, static_cast<double>(out.bytes()), with);
    communicator_->exchange(out, in, with);
  }
  void wait_all(const std::vector<std::unique_ptr<Pending>>& pending) override {
    if (pending.empty() || size() == 1) return communicator_->wait_all(pending);
    const Recorded span(&timeline_, "wait: all", SpanKind::message);
    waiting_ = true;
    communicator_->wait_all(pending);
    waiting_ = false;
  }

 private:
  template <class Start>
  std::unique_ptr<Pending> begin(Names names, const Tensor& tensor, int peer, const Start& start) {
    if (size() == 1) return start();
    auto pending = std::make_unique<RecordedPending>(timeline_, names, tensor, peer, waiting_);
    const Recorded span(&timeline_, names.operation, SpanKind::message, static_cast<double>(tensor.bytes()),
                        peer);
    pending->begun(start());
    return pending;
  }

  std::unique_ptr<RecordedGroup> recorded_group_;
  Timeline& timeline_;
  bool waiting_ = false;
  std::unique_ptr<Communicator> communicator_;
};

}  // namespace

std::unique_ptr<Communicator> recorded(Timeline* timeline, std::unique_ptr<Communicator> communicator) {
  if (timeline == nullptr) return communicator;
  auto group = std::make_unique<RecordedGroup>(*timeline, communicator->group());
  return std::make_unique<RecordedCommunicator>(std::move(group), *timeline, std::move(communicator));
}

}  // namespace stagegpt
