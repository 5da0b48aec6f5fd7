// The communicator of a single process: every collective is done before it begins.
#pragma once

#include "common/comm/communicator.h"
#include "common/error.h"

namespace stagegpt {

class SelfCommunicator final : public Communicator {
 public:
  using Communicator::Communicator;
  void broadcast(const Tensor&, int) override {}
  std::unique_ptr<Pending> all_reduce(const Tensor&) override { return std::make_unique<Done>(); }
  std::unique_ptr<Pending> reduce_scatter(const Tensor&) override { return std::make_unique<Done>(); }
  std::unique_ptr<Pending> all_gather(const Tensor&) override { return std::make_unique<Done>(); }
  std::unique_ptr<Pending> send(const Tensor&, int to) override { nobody(to); }
  std::unique_ptr<Pending> receive(const Tensor&, int from) override { nobody(from); }

 private:
  [[noreturn]] static void nobody(int rank) {
    throw InternalError(concat("self communicator: there is no rank ", rank, " to speak to"));
  }
};

}  // namespace stagegpt
