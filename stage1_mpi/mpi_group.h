// The ranks of an MPI job.
#pragma once

#include <mpi.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "common/comm/rank_group.h"
#include "stage1_mpi/watchdog.h"

namespace stagegpt {

// Created once: the constructor initialises MPI, and the destructor finalises it. From then on only rank 0
// prints: the output of other ranks is discarded, except that of end_all().
class MpiGroup final : public RankGroup {
 public:
  MpiGroup();
  ~MpiGroup() override;
  MpiGroup(const MpiGroup&) = delete;
  MpiGroup& operator=(const MpiGroup&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string host(int rank) const override { return hosts_[static_cast<std::size_t>(rank)]; }
  void barrier() override;
  void broadcast(std::span<std::byte> bytes, int root) override;
  void all_gather(std::span<const std::byte> own, std::span<std::byte> all) override;
  void enter(const char* phase) override { watchdog_->enter(phase); }
  // In while_root_works(), it also sends a message to the waiting ranks, at most every 100 ms.
  void beat() override;
  void while_root_works(const std::function<void()>& body, const Help& help) override;
  void ask_others(const Request& request) override;
  void send(std::span<const std::byte> bytes, int to) override;
  void receive(std::span<std::byte> bytes, int from) override;

  Watchdog& watchdog() { return *watchdog_; }
  // Prints to standard error why this rank cannot continue, and ends all ranks. Returns only if there is a
  // single rank.
  void end_all(const std::string& why, int exit_code);

 private:
  // A message of the root to the ranks that wait for it.
  enum class Kind : std::int64_t { progress, request, done };
  struct Signal {
    Kind kind;
    Request request;
  };
  Signal signal_others(Kind kind, const Request& request = {});

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 1;
  std::vector<std::string> hosts_;  // by rank
  std::unique_ptr<Watchdog> watchdog_;
  bool others_wait_ = false;                           // in while_root_works(), on the root
  std::chrono::steady_clock::time_point last_signal_;  // when the last signal was sent
};

}  // namespace stagegpt
