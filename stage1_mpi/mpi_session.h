// MPI in this process, from its start to its end.
#pragma once

#include <memory>
#include <string>

#include "stage1_mpi/watchdog.h"

namespace stagegpt {

// Created once: the constructor initialises MPI, and the destructor finalises it. From then on only rank 0
// prints: the output of other ranks is discarded, except that of end_all(). Every group of ranks belongs to
// the session, and must be destroyed before it.
class MpiSession {
 public:
  MpiSession();
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  Watchdog& watchdog() { return *watchdog_; }
  // Prints to standard error why this rank cannot continue, and ends all ranks. Returns only if there is a
  // single rank.
  void end_all(const std::string& why, int exit_code) const;

 private:
  int rank_ = 0, size_ = 1;
  std::unique_ptr<Watchdog> watchdog_;
};

}  // namespace stagegpt
