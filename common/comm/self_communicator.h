// The communicator of a single process: every collective is done before it begins.
#pragma once

#include "common/base/error.h"
#include "common/comm/communicator.h"

namespace stagegpt {

class SelfCommunicator final : public Communicator {
 public:
  SelfCommunicator() : Communicator(single_process()) {}
  // In the place of one of several ranks, for what it does alone or only in thought.
  explicit SelfCommunicator(RankGroup& group) : Communicator(group) {}
  void broadcast(const Tensor&, int) override {}
  std::unique_ptr<Pending> all_reduce(const Tensor&) override { return std::make_unique<Done>(); }
  std::unique_ptr<Pending> reduce_scatter(const Tensor&) override { return std::make_unique<Done>(); }
  std::unique_ptr<Pending> all_gather(const Tensor&) override { return std::make_unique<Done>(); }
  std::unique_ptr<Pending> send(const Tensor&, int to) override { nobody(to); }
  std::unique_ptr<Pending> receive(const Tensor&, int from) override { nobody(from); }

 private:
  static RankGroup& single_process() {
    static SingleProcess group;  // has no state
    return group;
  }
  [[noreturn]] static void nobody(int rank) {
    throw InternalError(concat("self communicator: there is no rank ", rank, " to speak to"));
  }
};

}  // namespace stagegpt
