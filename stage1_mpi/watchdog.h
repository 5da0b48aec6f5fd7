// Sees to it that no rank waits for ever for one that hangs.
//
// Each rank keeps a slot in memory that the ranks of its node share: what it does, since when, and whether it
// waits for others. A thread of each looks at all slots of the node, so that a rank which is stopped as a
// whole is named too.
//
// No memory is shared between nodes. Ranks of another node know only that they wait; when all of a node have
// waited for twice the limit, they end the job. So a rank for which others wait long must tell them that it
// works: while rank 0 saves, samples or writes a trace, it sends a message to all with every few of its
// heartbeats (MpiGroup::beat()), and each message begins a new wait. Not to watch such waits would be
// simpler, but a rank 0 alone on its node that is stopped in a save would never be found.
//
// A heartbeat is a block written or read, a file that has reached the disk, a token of a sample. A single
// call to the system gives none: an fsync, or the removal of a file, must return within the limit. Files are
// written past the page cache where the file system can, which leaves little to fsync.
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
  // See RankGroup::beat().
  void beat();

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
