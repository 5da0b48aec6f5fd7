// A group of ranks: those of an MPI communicator.
#pragma once

#include <mpi.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/comm/rank_group.h"
#include "stage1_mpi/mpi_session.h"

namespace stagegpt {

class MpiGroup final : public RankGroup {
 public:
  // Collective call. The communicator is duplicated, so that the group's messages are not mixed up with
  // others; it may be freed afterwards. The session is borrowed.
  MpiGroup(MpiSession& session, MPI_Comm comm);
  ~MpiGroup() override;
  MpiGroup(const MpiGroup&) = delete;
  MpiGroup& operator=(const MpiGroup&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string host(int rank) const override { return hosts_[static_cast<std::size_t>(rank)]; }
  void barrier() override;
  void broadcast(std::span<std::byte> bytes, int root) override;
  void all_gather(std::span<const std::byte> own, std::span<std::byte> all) override;
  void enter(const char* phase) override { watchdog().enter(phase); }
  // In while_root_works(), it also sends a message to the waiting ranks, at most every 100 ms.
  void beat() override;
  void while_root_works(const std::function<void()>& body) override;
  void send(std::span<const std::byte> bytes, int to) override;
  void receive(std::span<std::byte> bytes, int from) override;

  std::unique_ptr<RankGroup> split(int color, int key) override { return part(color, key); }
  // As split(), but returns an MpiGroup.
  std::unique_ptr<MpiGroup> part(int color, int key);

  MPI_Comm comm() const { return comm_; }
  Watchdog& watchdog() { return session_.watchdog(); }

 private:
  // A message of the root to the ranks that wait for it. Returns the root's signal on every rank.
  enum class Signal : std::uint8_t { progress, done };
  Signal signal_others(Signal signal);

  MpiSession& session_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 1;
  std::vector<std::string> hosts_;                     // by rank
  bool others_wait_ = false;                           // in while_root_works(), on the root
  std::chrono::steady_clock::time_point last_signal_;  // when the last signal was sent
};

}  // namespace stagegpt
