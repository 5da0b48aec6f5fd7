// Sees to it that no rank waits for ever for one that hangs.
//
// Each rank keeps a slot in memory that the ranks of its node share: what it does, since when, and whether it
// waits for others. A thread of each looks at all slots of the node, so that a rank which is stopped as a
// whole is named too.
#pragma once

#include <mpi.h>

#include <condition_variable>
#include <mutex>
#include <span>
#include <thread>

#include "stage1_mpi/watch_slot.h"

namespace stagegpt {

inline constexpr double kDefaultWatchdogSeconds = 600;

class Watchdog {
 public:
  // Of the ranks of a communicator; a collective call.
  explicit Watchdog(MPI_Comm comm);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // Ends all ranks, naming rank and phase, when one has been in a phase for `seconds` without waiting for
  // others, when one's process is stopped for so long, in whatever phase, or when all of this node have
  // waited twice as long. 0: never.
  void set_limit(double seconds);
  // See RankGroup::enter().
  void enter(const char* phase);

  // While it lives, this rank waits for others.
  class Waiting {
   public:
    explicit Waiting(Watchdog& watchdog) : watchdog_(watchdog) { watchdog_.set_waiting(true); }
    ~Waiting() { watchdog_.set_waiting(false); }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    Watchdog& watchdog_;
  };

 private:
  struct Slot;

  void set_waiting(bool waiting);
  void watch();
  void look() const;

  RankState state_;  // this rank's, as it was last told

  MPI_Comm node_ = MPI_COMM_NULL;
  MPI_Win window_ = MPI_WIN_NULL;
  std::span<Slot> slots_;  // of the node's ranks
  Slot* own_ = nullptr;

  std::mutex mutex_;
  std::condition_variable ended_;
  bool end_ = false;
  double limit_ = kDefaultWatchdogSeconds;
  double not_before_ = 0;  // when this process, that was stopped itself, looks at others again
  std::thread thread_;
};

}  // namespace stagegpt
