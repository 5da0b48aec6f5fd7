// The communicator of a single process: collectives do nothing.
#pragma once

#include "common/base/error.h"
#include "common/comm/communicator.h"

namespace stagegpt {

class SelfCommunicator final : public Communicator {
 public:
  SelfCommunicator() : Communicator(single_process()) {}
  // With the rank and size of one of several ranks, for work that this rank does alone or only plans.
  explicit SelfCommunicator(RankGroup& group) : Communicator(group) {}
  std::unique_ptr<Communicator> split(int, int) override { return std::make_unique<SelfCommunicator>(); }
  void broadcast(const Tensor&, int) override {}
  std::unique_ptr<Pending> all_reduce(const Tensor&) override { return std::make_unique<Done>(); }
  std::unique_ptr<Pending> reduce_scatter(const Tensor&) override { return std::make_unique<Done>(); }
  std::unique_ptr<Pending> all_gather(const Tensor&) override { return std::make_unique<Done>(); }
  std::unique_ptr<Pending> send(const Tensor&, int to) override { return with(to); }
  std::unique_ptr<Pending> receive(const Tensor&, int from) override { return with(from); }

 private:
  static RankGroup& single_process() {
    static SingleProcess group;  // has no state
    return group;
  }
  std::unique_ptr<Pending> with(int other) const {
    check(other >= 0 && other < size() && other != rank(), "self communicator: there is no rank ", other);
    return std::make_unique<Done>();
  }
};

}  // namespace stagegpt
