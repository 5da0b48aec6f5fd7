#include "common/profile/recorded_communicator.h"

#include <set>
#include <string>
#include <utility>

namespace stagegpt {
namespace {

class RecordedGroup final : public RankGroup {
 public:
  RecordedGroup(Timeline& timeline, RankGroup& group, bool is_part)
      : timeline_(timeline), group_(group), ranks_(is_part ? group.size() : 0) {}
  // Owns the group.
  RecordedGroup(Timeline& timeline, std::unique_ptr<RankGroup> group)
      : own_(std::move(group)), timeline_(timeline), group_(*own_), ranks_(group_.size()) {}
  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }
  std::string host(int rank) const override { return group_.host(rank); }

  std::unique_ptr<RankGroup> split(int color, int key) override {
    return std::make_unique<RecordedGroup>(timeline_, group_.split(color, key));
  }
  void barrier() override {
    const Recorded span(several(), "barrier", SpanKind::message, 0, -1, ranks_);
    group_.barrier();
  }
  void broadcast(std::span<std::byte> bytes, int root) override {
    const Recorded span(several(), "broadcast (host)", SpanKind::message, size_of(bytes), -1, ranks_);
    group_.broadcast(bytes, root);
  }
  void all_gather(std::span<const std::byte> own, std::span<std::byte> all) override {
    const Recorded span(several(), "all_gather (host)", SpanKind::message, size_of(own), -1, ranks_);
    group_.all_gather(own, all);
  }
  void enter(const char* phase) override {
    timeline_.enter(phase);
    group_.enter(phase);
  }
  void beat() override { group_.beat(); }
  void while_root_works(const std::function<void()>& body) override { group_.while_root_works(body); }
  void send(std::span<const std::byte> bytes, int to) override {
    const Recorded span(&timeline_, "send (host)", SpanKind::message, size_of(bytes), to, ranks_);
    group_.send(bytes, to);
  }
  void receive(std::span<std::byte> bytes, int from) override {
    const Recorded span(&timeline_, "receive (host)", SpanKind::message, size_of(bytes), from, ranks_);
    group_.receive(bytes, from);
  }

 private:
  static double size_of(std::span<const std::byte> bytes) { return static_cast<double>(bytes.size()); }
  // A single process sends nothing.
  Timeline* several() const { return group_.size() > 1 ? &timeline_ : nullptr; }

  std::unique_ptr<RankGroup> own_;
  Timeline& timeline_;
  RankGroup& group_;
  int ranks_ = 0;  // of a part
};

// A copy of a name that lives as long as the program, as a timeline needs it.
const char* kept(const std::string& name) {
  static std::set<std::string> names;
  return names.insert(name).first->c_str();
}

// The names of an operation's spans.
struct Names {
  // `part`: the number of ranks of a part; 0 for all ranks.
  Names(const char* plain, int part) {
    const std::string name = part == 0 ? plain : concat(plain, " among ", part, " ranks");
    operation = kept(name);
    wait = kept("wait: " + name);
    progress = kept("progress: " + name);
  }
  const char *operation, *wait, *progress;
};

class RecordedPending final : public Pending {
 public:
  // `waiting`: whether the host waits for all operations, and has a span for this.
  RecordedPending(Timeline& timeline, Names names, const Tensor& tensor, int peer, int ranks,
                  const bool& waiting)
      : timeline_(timeline), names_(names), waiting_(waiting) {
    span_.name = names.operation;
    span_.kind = SpanKind::collective;
    span_.work.bytes = static_cast<double>(tensor.bytes());
    span_.peer = peer;
    span_.ranks = ranks;
    span_.begin = Timeline::now();
  }
  void begun(std::unique_ptr<Pending> pending) { pending_ = std::move(pending); }

  void wait() override {
    {
      const Recorded span(&timeline_, names_.wait, SpanKind::message, span_.work.bytes, span_.peer,
                          span_.ranks);
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
      timeline_.add({.name = names_.progress,
                     .kind = SpanKind::message,
                     .begin = begin,
                     .end = end,
                     .ranks = span_.ranks});
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
                       std::unique_ptr<Communicator> communicator, bool is_part)
      : Communicator(*group),
        recorded_group_(std::move(group)),
        timeline_(timeline),
        communicator_(std::move(communicator)),
        ranks_(is_part ? size() : 0),
        broadcast_("broadcast", ranks_),
        all_reduce_("all_reduce", ranks_),
        reduce_scatter_("reduce_scatter", ranks_),
        all_gather_("all_gather", ranks_),
        send_("send", ranks_),
        receive_("receive", ranks_),
        exchange_("exchange", ranks_) {}

  std::unique_ptr<Communicator> split(int color, int key) override {
    std::unique_ptr<Communicator> part = communicator_->split(color, key);
    auto group = std::make_unique<RecordedGroup>(timeline_, part->group(), /*is_part=*/true);
    return std::make_unique<RecordedCommunicator>(std::move(group), timeline_, std::move(part),
                                                  /*is_part=*/true);
  }
  void broadcast(const Tensor& tensor, int root) override {
    const Recorded span(size() > 1 ? &timeline_ : nullptr, broadcast_.operation, SpanKind::message,
                        static_cast<double>(tensor.bytes()), -1, ranks_);
    communicator_->broadcast(tensor, root);
  }
  std::unique_ptr<Pending> all_reduce(const Tensor& tensor) override {
    return begin(all_reduce_, tensor, -1, [&] { return communicator_->all_reduce(tensor); });
  }
  std::unique_ptr<Pending> reduce_scatter(const Tensor& tensor) override {
    return begin(reduce_scatter_, tensor, -1, [&] { return communicator_->reduce_scatter(tensor); });
  }
  std::unique_ptr<Pending> all_gather(const Tensor& tensor) override {
    return begin(all_gather_, tensor, -1, [&] { return communicator_->all_gather(tensor); });
  }
  std::unique_ptr<Pending> send(const Tensor& tensor, int to) override {
    return begin(send_, tensor, to, [&] { return communicator_->send(tensor, to); });
  }
  std::unique_ptr<Pending> receive(const Tensor& tensor, int from) override {
    return begin(receive_, tensor, from, [&] { return communicator_->receive(tensor, from); });
  }
  std::unique_ptr<Pending> start_exchange(const Tensor& out, const Tensor& in, int with) override {
    return begin(exchange_, out, with, [&] { return communicator_->start_exchange(out, in, with); });
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
    auto pending = std::make_unique<RecordedPending>(timeline_, names, tensor, peer, ranks_, waiting_);
    const Recorded span(&timeline_, names.operation, SpanKind::message, static_cast<double>(tensor.bytes()),
                        peer, ranks_);
    pending->begun(start());
    return pending;
  }

  std::unique_ptr<RecordedGroup> recorded_group_;
  Timeline& timeline_;
  bool waiting_ = false;
  std::unique_ptr<Communicator> communicator_;
  int ranks_;  // of a part; 0 for all ranks
  Names broadcast_, all_reduce_, reduce_scatter_, all_gather_, send_, receive_, exchange_;
};

}  // namespace

std::unique_ptr<Communicator> recorded(Timeline* timeline, std::unique_ptr<Communicator> communicator) {
  if (timeline == nullptr) return communicator;
  auto group = std::make_unique<RecordedGroup>(*timeline, communicator->group(), /*is_part=*/false);
  return std::make_unique<RecordedCommunicator>(std::move(group), *timeline, std::move(communicator),
                                                /*is_part=*/false);
}

}  // namespace stagegpt
