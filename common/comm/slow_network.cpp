#include "common/comm/slow_network.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <thread>
#include <utility>

namespace stagegpt {
namespace {

using Clock = std::chrono::steady_clock;

// Sleeps in pieces, with a heartbeat after each, so that no watchdog takes a slow network for a hang.
void sleep_until(Clock::time_point end, RankGroup& group) {
  for (auto now = Clock::now(); now < end; now = Clock::now()) {
    std::this_thread::sleep_until(std::min(end, now + std::chrono::seconds(1)));
    group.beat();
  }
}

class Delayed final : public Pending {
 public:
  Delayed(RankGroup& group, Clock::time_point end, std::unique_ptr<Pending> pending)
      : group_(group), end_(end), pending_(std::move(pending)) {}
  void wait() override {
    if (pending_) pending_->wait();
    sleep_until(end_, group_);
  }
  bool progress() override {
    if (pending_ && !pending_->progress()) return false;
    if (Clock::now() >= end_) return true;
    std::this_thread::yield();  // a rank that polls until then leaves its core to others
    return false;
  }
  // The operation on the machine's own network, for the caller to wait for.
  std::unique_ptr<Pending> take() { return std::move(pending_); }

 private:
  RankGroup& group_;
  Clock::time_point end_;
  std::unique_ptr<Pending> pending_;
};

class SlowCommunicator final : public Communicator {
 public:
  SlowCommunicator(const Network& network, std::unique_ptr<Communicator> communicator)
      : Communicator(communicator->group()), network_(network), communicator_(std::move(communicator)) {}

  std::unique_ptr<Communicator> split(int color, int key) override {
    return slowed(network_, communicator_->split(color, key));
  }
  void broadcast(const Tensor& tensor, int root) override {
    const Clock::time_point end = end_of(broadcast_seconds(network_, size(), bytes(tensor)));
    communicator_->broadcast(tensor, root);
    sleep_until(end, group());
  }
  std::unique_ptr<Pending> all_reduce(const Tensor& tensor) override {
    const Clock::time_point end = end_of(2 * reduce_scatter_seconds(network_, size(), bytes(tensor)));
    return delayed(end, communicator_->all_reduce(tensor));
  }
  std::unique_ptr<Pending> reduce_scatter(const Tensor& tensor) override {
    const Clock::time_point end = end_of(reduce_scatter_seconds(network_, size(), bytes(tensor)));
    return delayed(end, communicator_->reduce_scatter(tensor));
  }
  std::unique_ptr<Pending> all_gather(const Tensor& tensor) override {
    const Clock::time_point end = end_of(reduce_scatter_seconds(network_, size(), bytes(tensor)));
    return delayed(end, communicator_->all_gather(tensor));
  }
  // The network's time is that of the receiver.
  std::unique_ptr<Pending> send(const Tensor& tensor, int to) override {
    return delayed(Clock::now(), communicator_->send(tensor, to));
  }
  std::unique_ptr<Pending> receive(const Tensor& tensor, int from) override {
    const Clock::time_point end = end_of(message_seconds(network_, bytes(tensor)));
    return delayed(end, communicator_->receive(tensor, from));
  }
  std::unique_ptr<Pending> start_exchange(const Tensor& out, const Tensor& in, int with) override {
    const Clock::time_point end = end_of(message_seconds(network_, bytes(out)));
    return delayed(end, communicator_->start_exchange(out, in, with));
  }
  void wait_all(const std::vector<std::unique_ptr<Pending>>& pending) override {
    std::vector<std::unique_ptr<Pending>> undelayed;
    for (const auto& one : pending) {
      auto* delayed = dynamic_cast<Delayed*>(one.get());  // null: it is recorded, and waits for itself
      if (delayed == nullptr) continue;
      if (auto taken = delayed->take()) undelayed.push_back(std::move(taken));
    }
    communicator_->wait_all(undelayed);
    for (const auto& one : pending) one->wait();
  }

 private:
  static double bytes(const Tensor& tensor) { return static_cast<double>(tensor.bytes()); }
  // When an operation that begins now ends, after those before it.
  Clock::time_point end_of(double seconds) {
    constexpr double kLongest = 1e9;  // what the clock can count; 30 years
    const auto duration = std::chrono::duration_cast<Clock::duration>(
        std::chrono::duration<double>(std::min(seconds, kLongest)));
    free_ = std::max(free_, Clock::now()) + duration;
    return free_;
  }
  std::unique_ptr<Pending> delayed(Clock::time_point end, std::unique_ptr<Pending> pending) {
    return std::make_unique<Delayed>(group(), end, std::move(pending));
  }

  Network network_;
  std::unique_ptr<Communicator> communicator_;
  Clock::time_point free_;  // when the connection is free
};

}  // namespace

double reduce_scatter_seconds(const Network& network, int ranks, double bytes) {
  return (ranks - 1) * (network.latency + bytes / ranks * network.seconds_per_byte);
}

double broadcast_seconds(const Network& network, int ranks, double bytes) {
  if (ranks == 1) return 0;
  const int rounds = std::bit_width(static_cast<unsigned>(ranks - 1));  // ⌈log₂N⌉
  return rounds * network.latency + bytes * network.seconds_per_byte;
}

double message_seconds(const Network& network, double bytes) {
  return network.latency + bytes * network.seconds_per_byte;
}

std::string description(const Network& network) {
  if (!network.delays()) return "";
  const auto gigabits = [&] { return concat(8e-9 / network.seconds_per_byte, " Gb/s"); };
  return concat("network delayed: ", network.latency * 1e6, " µs",
                network.seconds_per_byte > 0 ? ", " + gigabits() : "");
}

std::unique_ptr<Communicator> slowed(const Network& network, std::unique_ptr<Communicator> communicator) {
  if (!network.delays()) return communicator;
  return std::make_unique<SlowCommunicator>(network, std::move(communicator));
}

}  // namespace stagegpt
