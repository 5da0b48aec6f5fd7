// The watchdog ends all ranks if one hangs, so that no rank waits forever.
//
// Each rank has a slot in memory shared by the ranks of its node: its phase, when it began, and whether it
// waits for others. A thread of each rank checks all slots of the node, so that a rank whose process is
// stopped is found too.
//
// Nodes share no memory. A rank of another node only knows that it waits. If all ranks of a node have waited
// for twice the limit, they end the job. So a rank for which others wait long must show them that it works:
// while rank 0 saves or samples, its heartbeats (MpiGroup::beat()) also send messages to the others, and each
// message starts a new wait. (In a trace, the others wait while rank 0 collects and writes the outputs.)
// Leaving such waits unwatched would be simpler, but if rank 0 is alone on its node, its being stopped during
// a save would never be found.
//
// There is a heartbeat for each block written or read, each file synced to the disk, and each sampled token.
// There is none during a system call: an fsync, or the removal of a file, must return within the limit. Files
// bypass the page cache if the file system supports that, which keeps fsync short.
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
  // Watches the ranks of a communicator. Collective call.
  explicit Watchdog(MPI_Comm comm);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // All ranks are ended, with a message that names the rank and its phase, if a rank has been in a phase for
  // `seconds` without waiting for others; if its process has been stopped for that long, in any phase; or if
  // all ranks of this node have waited for twice that long. 0: never.
  void set_limit(double seconds);
  // See RankGroup::enter().
  void enter(const char* phase);
  // See RankGroup::beat().
  void beat();

  // During its lifetime, this rank is marked as waiting for others.
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
  void check_ranks() const;

  RankState state_;  // this rank's current state

  MPI_Comm node_ = MPI_COMM_NULL;
  MPI_Win window_ = MPI_WIN_NULL;
  std::span<Slot> slots_;  // of the ranks of this node
  Slot* own_ = nullptr;

  std::mutex mutex_;
  std::condition_variable ended_;
  bool end_ = false;
  double limit_ = kDefaultWatchdogSeconds;
  double not_before_ = 0;  // after this process was stopped: when it checks other ranks again
  std::thread thread_;
};

}  // namespace stagegpt
