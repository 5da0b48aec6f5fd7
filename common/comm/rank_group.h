// The processes that run one program together, and what they say to each other about it: short messages in
// host memory. A group is passed to whoever needs one; there is no global rank.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace stagegpt {

// Every rank makes the same calls in the same order. A call returns when its result is there.
class RankGroup {
 public:
  virtual ~RankGroup() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  bool is_root() const { return rank() == 0; }
  // The name of the machine that a rank runs on; empty where there is nothing to tell apart.
  virtual std::string host(int /*rank*/) const { return ""; }

  virtual void barrier() = 0;
  // The root's bytes, on every rank, of the same number.
  virtual void broadcast(std::span<std::byte> bytes, int root) = 0;
  // all = the bytes of rank 0, of rank 1, …: of each rank the same number.
  virtual void all_gather(std::span<const std::byte> own, std::span<std::byte> all) = 0;

  // What this rank does from now on, for whoever watches that it does not take for ever. `phase` is a
  // literal.
  virtual void enter(const char* phase) = 0;
  // This rank makes progress in its phase: its time begins anew. Cheap enough for every block that is
  // written.
  virtual void beat() {}
  // What rank 0 asks of the others: its meaning is between those two.
  using Request = std::array<std::int64_t, 3>;
  using Help = std::function<void(const Request&)>;
  // Calls `body`, which must not throw, on rank 0; the others return when it has ended. A beat() in it counts
  // for those who wait as well; for each ask_others() in it they call `help`.
  virtual void while_root_works(const std::function<void()>& body, const Help& help);
  virtual void ask_others(const Request& request);

  // From one rank to another, of the same number. Those between two ranks arrive in order.
  virtual void send(std::span<const std::byte> bytes, int to);
  virtual void receive(std::span<std::byte> bytes, int from);
};

// Marks a phase of which it cannot be said how long it may take: nobody watches.
inline constexpr const char* kUnwatched = "";

class SingleProcess final : public RankGroup {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void barrier() override {}
  void broadcast(std::span<std::byte>, int) override {}
  void all_gather(std::span<const std::byte> own, std::span<std::byte> all) override;
  void enter(const char*) override {}
};

}  // namespace stagegpt
