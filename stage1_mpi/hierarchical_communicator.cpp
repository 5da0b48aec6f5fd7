#include "stage1_mpi/hierarchical_communicator.h"

#include <algorithm>
#include <array>
#include <functional>
#include <utility>
#include <vector>

namespace stagegpt {
namespace {

using Operations = std::vector<std::unique_ptr<Pending>>;

// A step on one level: starts its operations, which the level's communicator can wait for.
struct Step {
  Communicator* level;
  std::function<Operations()> start;
};
using Steps = std::array<Step, 3>;

class InSteps;

// The operations in progress, in the order of their calls. They start each step in this order, whichever has
// done the step before first: all ranks must make the same calls in the same order on each level.
struct Order {
  std::vector<InSteps*> in_progress;
  std::int64_t called = 0;                   // operations so far
  std::array<std::int64_t, 3> started = {};  // of which have started each step
};

class InSteps final : public Pending {
 public:
  InSteps(Steps steps, Order& order) : steps_(std::move(steps)), order_(order), number_(order.called) {
    start_next();
    ++order_.called;
    order_.in_progress.push_back(this);
  }
  ~InSteps() override { std::erase(order_.in_progress, this); }
  InSteps(const InSteps&) = delete;
  InSteps& operator=(const InSteps&) = delete;

  bool progress() override {
    while (true) {
      std::erase_if(operations_, [](const auto& one) { return one->progress(); });
      if (!operations_.empty()) return false;
      if (step_ == steps_.size()) return true;
      if (order_.started[step_] != number_) return false;  // an earlier operation is first
      start_next();
    }
  }

  // Before each step, the operations before this one start theirs.
  void wait() override {
    for (std::size_t step = 1; step < steps_.size(); ++step) {
      for (InSteps* one : order_.in_progress) {
        if (one->number_ <= number_ && one->step_ == step) {
          one->wait_for_step();
          one->start_next();
        }
      }
    }
    wait_for_step();
  }

 private:
  void start_next() {
    operations_ = steps_[step_].start();
    ++order_.started[step_++];
  }
  void wait_for_step() {
    if (operations_.size() == 1) operations_[0]->wait();
    if (operations_.size() > 1) steps_[step_ - 1].level->wait_all(operations_);
    operations_.clear();
  }

  Steps steps_;
  Order& order_;
  std::int64_t number_;
  std::size_t step_ = 0;  // steps started
  Operations operations_;
};

template <class... Pointers>
Operations operations(Pointers... started) {
  Operations all;
  (all.push_back(std::move(started)), ...);
  return all;
}

class HierarchicalCommunicator final : public Communicator {
 public:
  HierarchicalCommunicator(Levels levels, Backend& backend, Watchdog& watchdog)
      : Communicator(levels.all->group()),
        levels_(std::move(levels)),
        backend_(backend),
        watchdog_(watchdog) {}

  std::unique_ptr<Communicator> split(int color, int key) override { return levels_.all->split(color, key); }

  // Across nodes once, to the ranks with the root's local rank. A step of an operation in progress could
  // start before it on one rank and after it on another.
  void broadcast(const Tensor& tensor, int root) override {
    check(order_.in_progress.empty(), "communicator: broadcast() while other operations are in progress");
    if (local(root) == local(rank())) levels_.across->broadcast(tensor, node(root));
    levels_.scatter->broadcast(tensor, local(root));
  }

  // The elements that cannot be divided among the ranks of a node, fewer than L, are not scattered.
  std::unique_ptr<Pending> all_reduce(const Tensor& tensor) override {
    const std::int64_t L = levels_.scatter->size(), slice = tensor.numel() / L;
    const Tensor divided = tensor.slice(0, {slice * L}), rest = tensor.slice(slice * L, {tensor.numel() % L});
    const Tensor own = divided.slice(levels_.scatter->rank() * slice, {slice});
    const auto with_rest = [rest](Communicator& level, std::unique_ptr<Pending> started) {
      return rest.numel() == 0 ? operations(std::move(started))
                               : operations(std::move(started), level.all_reduce(rest));
    };
    return in_steps(
        [=, this] { return with_rest(*levels_.scatter, levels_.scatter->reduce_scatter(divided)); },
        [=, this] { return with_rest(*levels_.across, levels_.across->all_reduce(own)); },
        [=, this] { return operations(levels_.gather->all_gather(divided)); });
  }

  std::unique_ptr<Pending> reduce_scatter(const Tensor& tensor) override {
    const Tensor own = own_slice(tensor), packed = allocate_packed(own);
    return in_steps(
        [=, this] {
          return of_blocks(tensor,
                           [&](const Tensor& block) { return levels_.scatter->reduce_scatter(block); });
        },
        [=, this] {
          for_each_slice(tensor, packed, [&](const Tensor& in_tensor, const Tensor& in_packed) {
            backend_.copy(in_packed, in_tensor);
          });
          return operations(levels_.across->reduce_scatter(packed));
        },
        [=, this] {
          backend_.copy(own, packed.slice(levels_.across->rank() * own.numel(), own.shape()));
          return operations();
        });
  }

  std::unique_ptr<Pending> all_gather(const Tensor& tensor) override {
    const Tensor own = own_slice(tensor);
    if (own.bytes() <= kShortSlice) return gather_short(tensor);
    const Tensor packed = allocate_packed(own);
    return in_steps([] { return operations(); },
                    [=, this] {
                      backend_.copy(packed.slice(levels_.across->rank() * own.numel(), own.shape()), own);
                      return operations(levels_.across->all_gather(packed));
                    },
                    [=, this] {
                      for_each_slice(tensor, packed, [&](const Tensor& in_tensor, const Tensor& in_packed) {
                        backend_.copy(in_tensor, in_packed);
                      });
                      return of_blocks(
                          tensor, [&](const Tensor& block) { return levels_.gather->all_gather(block); });
                    });
  }

  std::unique_ptr<Pending> send(const Tensor& tensor, int to) override {
    return is_near(to) ? levels_.scatter->send(tensor, local(to)) : levels_.all->send(tensor, to);
  }
  std::unique_ptr<Pending> receive(const Tensor& tensor, int from) override {
    return is_near(from) ? levels_.scatter->receive(tensor, local(from)) : levels_.all->receive(tensor, from);
  }

  void wait_all(const Operations& pending) override {
    const Watchdog::Waiting waiting(watchdog_);
    const auto is_done = [](const auto& one) { return one->progress(); };
    // Those in the list wait for earlier ones, which need not be in it.
    while (!std::ranges::all_of(pending, is_done)) {
      for (InSteps* one : order_.in_progress) one->progress();
    }
  }

 private:
  // Bytes of a slice for which latency matters more than the bytes across nodes.
  static constexpr std::size_t kShortSlice = 1024;

  int local(int rank) const { return rank % levels_.scatter->size(); }
  int node(int rank) const { return rank / levels_.scatter->size(); }
  bool is_near(int other) const { return node(other) == node(rank()); }

  template <class First, class Second, class Third>
  std::unique_ptr<Pending> in_steps(First first, Second second, Third third) {
    return std::make_unique<InSteps>(
        Steps{Step{levels_.scatter.get(), std::move(first)}, Step{levels_.across.get(), std::move(second)},
              Step{levels_.gather.get(), std::move(third)}},
        order_);
  }
  // The block of a node's slices: L neighbours.
  static Tensor block_of(const Tensor& tensor, int node, int nodes) {
    const std::int64_t size = tensor.numel() / nodes;
    return tensor.slice(node * size, {size});
  }
  template <class F>
  Operations of_blocks(const Tensor& tensor, const F& start) const {
    Operations operations;
    const int nodes = levels_.across->size();
    for (int node = 0; node < nodes; ++node) operations.push_back(start(block_of(tensor, node, nodes)));
    return operations;
  }

  // The slices of this local rank, one of each block, as one tensor.
  Tensor allocate_packed(const Tensor& slice) const {
    return backend_.allocate(slice.dtype(), {levels_.across->size() * slice.numel()});
  }
  template <class F>
  void for_each_slice(const Tensor& tensor, const Tensor& packed, const F& f) const {
    const std::int64_t slice = tensor.numel() / size();
    for (int node = 0; node < levels_.across->size(); ++node) {
      const int owner = node * levels_.scatter->size() + levels_.scatter->rank();
      f(tensor.slice(owner * slice, {slice}), packed.slice(node * slice, {slice}));
    }
  }

  // First the block of this node, then all blocks: two operations, but each rank receives the whole tensor
  // across nodes.
  std::unique_ptr<Pending> gather_short(const Tensor& tensor) {
    const Tensor own_block = block_of(tensor, levels_.across->rank(), levels_.across->size());
    return in_steps([=, this] { return operations(levels_.scatter->all_gather(own_block)); },
                    [=, this] { return operations(levels_.across->all_gather(tensor)); },
                    [] { return operations(); });
  }

  Levels levels_;
  Backend& backend_;
  Watchdog& watchdog_;
  Order order_;
};

}  // namespace

std::unique_ptr<Communicator> make_hierarchical_communicator(Levels levels, Backend& backend,
                                                             Watchdog& watchdog) {
  return std::make_unique<HierarchicalCommunicator>(std::move(levels), backend, watchdog);
}

}  // namespace stagegpt
