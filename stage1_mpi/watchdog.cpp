#include "stage1_mpi/watchdog.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <new>

#include "stage1_mpi/mpi_check.h"

namespace stagegpt {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Ends this process at once; the launcher then ends the others.
[[noreturn]] void end(int rank, const char* what, const char* phase, double seconds) {
  std::fprintf(stderr, "%s: rank %d %s \"%s\" for %.0f s (--watchdog-seconds): ending all ranks\n",
               program_invocation_short_name, rank, what, phase, seconds);
  _exit(1);
}

}  // namespace

// Each field has one writing thread. All watchdogs of the node read it.
struct Watchdog::Slot {
  WatchSlot state;                    // written by the rank
  std::atomic<double> alive = now();  // written by its watchdog: when the watchdog last ran
  std::atomic<double> excused = 0;    // written by its watchdog: time before this moment is not counted
  int rank = 0;                       // written once, before other processes read it
  std::atomic<bool> reported = false;
};

Watchdog::Watchdog(MPI_Comm comm) {
  static_assert(std::atomic<double>::is_always_lock_free, "in shared memory");
  check_mpi(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node_), "MPI_Comm_split_type");
  int node_size = 1, node_rank = 0, rank = 0;
  check_mpi(MPI_Comm_size(node_, &node_size), "MPI_Comm_size");
  check_mpi(MPI_Comm_rank(node_, &node_rank), "MPI_Comm_rank");
  check_mpi(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");

  // The node's rank 0 allocates all slots, so that they are contiguous.
  void* memory = nullptr;
  const MPI_Aint bytes = node_rank == 0 ? static_cast<MPI_Aint>(sizeof(Slot)) * node_size : 0;
  check_mpi(MPI_Win_allocate_shared(bytes, sizeof(Slot), MPI_INFO_NULL, node_, &memory, &window_),
            "MPI_Win_allocate_shared");
  MPI_Aint size = 0;
  int unit = 0;
  check_mpi(MPI_Win_shared_query(window_, 0, &size, &unit, &memory), "MPI_Win_shared_query");
  slots_ = {static_cast<Slot*>(memory), static_cast<std::size_t>(node_size)};
  own_ = new (&slots_[static_cast<std::size_t>(node_rank)]) Slot;
  own_->rank = rank;
  state_.since = now();
  own_->state.set(state_);
  check_mpi(MPI_Barrier(node_), "MPI_Barrier");

  thread_ = std::thread([this] { watch(); });
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    end_ = true;
  }
  ended_.notify_one();
  thread_.join();
  MPI_Win_free(&window_);
  MPI_Comm_free(&node_);
}

void Watchdog::set_limit(double seconds) {
  const std::lock_guard lock(mutex_);
  limit_ = seconds;
}

void Watchdog::enter(const char* phase) {
  state_.set_phase(phase);
  state_.since = now();
  own_->state.set(state_);
}

void Watchdog::beat() {
  state_.since = now();
  own_->state.set(state_);
}

void Watchdog::set_waiting(bool waiting) {
  state_.waiting = waiting;
  state_.since = now();
  own_->state.set(state_);
}

void Watchdog::watch() {
  constexpr auto kInterval = std::chrono::milliseconds(250);
  std::unique_lock lock(mutex_);
  while (!ended_.wait_for(lock, kInterval, [this] { return end_; })) {
    constexpr double kAsleep = 2;  // far more than an interval: this process was stopped
    if (now() - own_->alive > kAsleep) {
      own_->excused = now();
      not_before_ = now() + limit_;
    }
    own_->alive = now();
    if (limit_ > 0 && now() > not_before_) check_ranks();
  }
}

void Watchdog::check_ranks() const {
  constexpr double kGrace = 1;  // so that the rank itself reports first
  bool all_wait = true;
  for (Slot& slot : slots_) {
    const RankState state = slot.state.get();
    const double seconds = now() - std::max(state.since, slot.excused.load());
    const bool stopped = now() - slot.alive > limit_;  // the whole process is stopped
    const bool waits = state.waiting && !stopped;
    all_wait = all_wait && state.watched() && waits && seconds > 2 * limit_;
    const bool late = state.watched() && !waits && seconds > limit_ + (&slot == own_ ? 0 : kGrace);
    if ((!late && !stopped) || slot.reported.exchange(true)) continue;
    end(slot.rank, stopped ? "was stopped in" : "has been in",
        state.watched() ? state.phase.data() : "an unlimited phase", seconds);
  }
  if (all_wait && !slots_[0].reported.exchange(true)) {
    end(own_->rank, "has waited for other ranks in", own_->state.get().phase.data(), 2 * limit_);
  }
}

}  // namespace stagegpt
