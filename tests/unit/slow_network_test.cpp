// The delays of a slower network, on a fake communicator. Clocks are compared in one direction only: an
// operation takes at least its time.
#include "common/comm/slow_network.h"

#include <gtest/gtest.h>

#include <chrono>

#include "common/base/seconds_since.h"
#include "common/profile/recorded_communicator.h"
#include "stage0_serial/naive_backend.h"
#include "tests/support/counting_communicator.h"

namespace stagegpt::test {
namespace {

constexpr int kRanks = 4;
constexpr std::int64_t kElements = 1000;  // 4,000 bytes

class SlowNetwork : public testing::Test {
 protected:
  std::unique_ptr<Communicator> with(const Network& network) {
    auto counting = std::make_unique<CountingCommunicator>(ranks_);
    counting_ = counting.get();
    return slowed(network, std::move(counting));
  }

  AlikeRanks ranks_{1, kRanks};
  CountingCommunicator* counting_ = nullptr;
  const std::unique_ptr<Backend> backend_ = make_naive_backend();
  const Tensor tensor_ = backend_->zeros(DType::f32, {kElements});
};

// 1 ms and 1 Gb/s: 8 MB take 64 ms, a slice of a quarter 16 ms.
TEST_F(SlowNetwork, HasTheTimesOfARing) {
  const Network network{.latency = 1e-3, .seconds_per_byte = 8e-9};
  EXPECT_DOUBLE_EQ(reduce_scatter_seconds(network, 4, 8e6), 3 * 17e-3);
  EXPECT_DOUBLE_EQ(broadcast_seconds(network, 4, 8e6), 66e-3);
  EXPECT_DOUBLE_EQ(broadcast_seconds(network, 5, 8e6), 67e-3);
  EXPECT_DOUBLE_EQ(message_seconds(network, 8e6), 65e-3);
  EXPECT_EQ(reduce_scatter_seconds(network, 1, 8e6), 0);
  EXPECT_EQ(broadcast_seconds(network, 1, 8e6), 0);
  EXPECT_EQ(description(network), "network delayed: 1000 µs, 1 Gb/s");
  EXPECT_EQ(description({.latency = 5e-6}), "network delayed: 5 µs");
}

TEST_F(SlowNetwork, WithoutADelayIsTheCommunicatorItself) {
  const auto communicator = with({});
  EXPECT_EQ(communicator.get(), counting_);
  EXPECT_EQ(description(Network{}), "");
}

TEST_F(SlowNetwork, CompletesNothingBeforeItsTime) {
  const auto communicator = with({.latency = 1e6});
  for (const auto& pending : {communicator->all_reduce(tensor_), communicator->reduce_scatter(tensor_),
                              communicator->all_gather(tensor_), communicator->receive(tensor_, 0)}) {
    EXPECT_FALSE(pending->progress());
  }
  EXPECT_EQ(counting_->calls().size(), 4);
}

// An all-reduce has 2(N-1) = 6 latencies, the others 3; two operations share the connection.
TEST_F(SlowNetwork, TakesTheTimeOfAllOperations) {
  const auto communicator = with({.latency = 2e-3});
  const auto begin = std::chrono::steady_clock::now();
  const auto first = communicator->all_reduce(tensor_), second = communicator->all_gather(tensor_);
  first->wait();
  EXPECT_GE(seconds_since(begin), 12e-3);
  second->wait();
  EXPECT_GE(seconds_since(begin), 18e-3);
  EXPECT_TRUE(first->progress());
  EXPECT_TRUE(second->progress());
  communicator->broadcast(tensor_, 0);
  EXPECT_GE(seconds_since(begin), 22e-3);
  communicator->exchange(tensor_, tensor_, 0);
  EXPECT_GE(seconds_since(begin), 24e-3);
}

TEST_F(SlowNetwork, DelaysByBytes) {
  const auto communicator = with({.seconds_per_byte = 10e-6});  // a slice of 1,000 bytes takes 10 ms
  const auto begin = std::chrono::steady_clock::now();
  communicator->reduce_scatter(tensor_)->wait();
  EXPECT_GE(seconds_since(begin), 30e-3);
}

TEST_F(SlowNetwork, WaitsForAllOperationsOfTheMachinesOwn) {
  const auto communicator = with({.latency = 1e-3});
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::unique_ptr<Pending>> pending;
  pending.push_back(communicator->reduce_scatter(tensor_));
  pending.push_back(communicator->send(tensor_, 0));
  pending.push_back(communicator->all_gather(tensor_));
  EXPECT_EQ(counting_->under_way(), 3);
  // The fake's operations are done only when someone waits for them.
  communicator->wait_all(pending);
  EXPECT_EQ(counting_->under_way(), 0);
  EXPECT_GE(seconds_since(begin), 6e-3);
  for (const auto& one : pending) EXPECT_TRUE(one->progress());
}

TEST_F(SlowNetwork, WaitsForOperationsThatAreRecorded) {
  Timeline timeline;
  const auto communicator = recorded(&timeline, with({.latency = 1e-3}));
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::unique_ptr<Pending>> pending;
  pending.push_back(communicator->reduce_scatter(tensor_));
  pending.push_back(communicator->all_gather(tensor_));
  communicator->wait_all(pending);
  EXPECT_EQ(counting_->under_way(), 0);
  EXPECT_GE(seconds_since(begin), 6e-3);
}

}  // namespace
}  // namespace stagegpt::test
