// The group of processes (ranks) of one run, and short messages between them in host memory. A group is
// passed as an argument; there is no global rank.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace stagegpt {

// Every rank must make the same calls in the same order. Calls are blocking.
class RankGroup {
 public:
  virtual ~RankGroup() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  bool is_root() const { return rank() == 0; }
  // The name of the node on which a rank runs; empty for a single process.
  virtual std::string host(int /*rank*/) const { return ""; }

  virtual void barrier() = 0;
  // Copies the root's bytes to every rank. The number of bytes must be the same on all ranks.
  virtual void broadcast(std::span<std::byte> bytes, int root) = 0;
  // all = the bytes of rank 0, of rank 1, …. The number of bytes must be the same on all ranks.
  virtual void all_gather(std::span<const std::byte> own, std::span<std::byte> all) = 0;

  // The group of all ranks with the same color (not negative), in the order of their keys; among equal keys,
  // of their ranks here. Each rank is in one of the new groups. Collective call.
  virtual std::unique_ptr<RankGroup> split(int color, int key);

  // Begins a phase of this rank's work, for the watchdog, which ends the run if a phase takes too long.
  // `phase` must be a string literal.
  virtual void enter(const char* phase) = 0;
  // Reports progress in the current phase: its time limit starts again. Cheap enough to call for every block
  // of a file.
  virtual void beat() {}
  // Calls `body`, which must not throw, on rank 0. The other ranks wait until it has ended. A beat() in
  // `body` also restarts the time limit of the waiting ranks.
  virtual void while_root_works(const std::function<void()>& body);

  // Point-to-point messages. Both ranks must give the same number of bytes. Messages between two ranks arrive
  // in order.
  virtual void send(std::span<const std::byte> bytes, int to);
  virtual void receive(std::span<std::byte> bytes, int from);
};

// A phase without a time limit, for work whose duration is not bounded.
inline constexpr const char* kUnwatched = "";

class SingleProcess final : public RankGroup {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void barrier() override {}
  void broadcast(std::span<std::byte>, int) override {}
  void all_gather(std::span<const std::byte> own, std::span<std::byte> all) override;
  void enter(const char*) override {}
  std::unique_ptr<RankGroup> split(int, int) override { return std::make_unique<SingleProcess>(); }
};

}  // namespace stagegpt
