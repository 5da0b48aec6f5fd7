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
  std::unique_ptr<Pending> send(const Tensor&, int to) override { no_such_rank(to); }
  std::unique_ptr<Pending> receive(const Tensor&, int from) override { no_such_rank(from); }

 private:
  static RankGroup& single_process() {
    static SingleProcess group;  // has no state
    return group;
  }
  [[noreturn]] static void no_such_rank(int rank) {
    throw InternalError(concat("self communicator: there is no rank ", rank));
  }
};

}  // namespace stagegpt
