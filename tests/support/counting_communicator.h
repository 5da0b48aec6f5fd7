// Fakes for many ranks that are all alike: a communicator that records its calls.
#pragma once

#include <algorithm>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "common/backend/backend.h"
#include "common/comm/communicator.h"

namespace stagegpt::test {

// A group in which all ranks have the same data as this one.
class AlikeRanks final : public RankGroup {
 public:
  AlikeRanks(int rank, int size) : rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void barrier() override {}
  void broadcast(std::span<std::byte>, int) override {}
  void all_gather(std::span<const std::byte> own, std::span<std::byte> all) override {
    for (auto out = all.begin(); out != all.end(); out += std::ssize(own)) std::ranges::copy(own, out);
  }
  void enter(const char*) override {}

 private:
  int rank_, size_;
};

struct CommunicatorCall {
  std::string name;
  const void* address;
  std::size_t bytes;

  friend bool operator==(const CommunicatorCall&, const CommunicatorCall&) = default;
  friend std::ostream& operator<<(std::ostream& out, const CommunicatorCall& call) {
    return out << call.name << " of " << call.bytes << " bytes at " << call.address;
  }
};

// Transfers nothing, except that an all-gather copies this rank's slice to the other slices if there is a
// backend.
class CountingCommunicator final : public Communicator {
 public:
  explicit CountingCommunicator(RankGroup& group, Backend* backend = nullptr)
      : Communicator(group), backend_(backend) {}

  const std::vector<CommunicatorCall>& calls() const { return calls_; }
  void clear() { calls_.clear(), under_way_.most = under_way_.now; }
  int under_way() const { return under_way_.now; }
  int most_under_way() const { return under_way_.most; }
  // Operations that somebody still holds, complete or not.
  int held() const { return under_way_.held; }
  // How often a pending operation was advanced.
  int advanced() const { return under_way_.advanced; }
  std::size_t bytes(const std::string& name) const {
    std::size_t sum = 0;
    for (const CommunicatorCall& call : calls_) sum += call.name == name ? call.bytes : 0;
    return sum;
  }

  std::unique_ptr<Communicator> split(int, int) override {
    throw InternalError("counting communicator: split()");
  }
  void broadcast(const Tensor& tensor, int) override { log("broadcast", tensor)->wait(); }
  std::unique_ptr<Pending> all_reduce(const Tensor& tensor) override { return log("all_reduce", tensor); }
  std::unique_ptr<Pending> reduce_scatter(const Tensor& tensor) override {
    return log("reduce_scatter", tensor);
  }
  std::unique_ptr<Pending> all_gather(const Tensor& tensor) override {
    const Tensor own = own_slice(tensor);
    for (int other = 0; other < size() && backend_ != nullptr; ++other) {
      if (other != rank()) backend_->copy(tensor.slice(other * own.numel(), own.shape()), own);
    }
    return log("all_gather", tensor);
  }
  std::unique_ptr<Pending> send(const Tensor& tensor, int) override { return log("send", tensor); }
  std::unique_ptr<Pending> receive(const Tensor& tensor, int) override { return log("receive", tensor); }

 private:
  struct UnderWay {
    int now = 0, most = 0, advanced = 0, held = 0;
  };

  // The operation is not complete before wait().
  class Counted final : public Pending {
   public:
    explicit Counted(UnderWay& under_way) : under_way_(under_way) {
      under_way_.most = std::max(under_way_.most, ++under_way_.now);
      ++under_way_.held;
    }
    ~Counted() override { --under_way_.held; }
    Counted(const Counted&) = delete;
    Counted& operator=(const Counted&) = delete;
    void wait() override {
      if (!done_) --under_way_.now;
      done_ = true;
    }
    bool progress() override {
      ++under_way_.advanced;
      return done_;
    }

   private:
    UnderWay& under_way_;
    bool done_ = false;
  };

  std::unique_ptr<Pending> log(const char* name, const Tensor& tensor) {
    calls_.push_back({name, tensor.raw(), tensor.bytes()});
    return std::make_unique<Counted>(under_way_);
  }

  Backend* backend_;
  std::vector<CommunicatorCall> calls_;
  UnderWay under_way_;
};

}  // namespace stagegpt::test
