// Base class of the synchronisations with all-reduce: every rank gets all summed gradients and updates all
// weights.
#pragma once

#include <memory>
#include <vector>

#include "common/comm/communicator.h"
#include "common/comm/reduction_clock.h"

namespace stagegpt {

class AllReduceSync : public NoGradientSync {
 public:
  AllReduceSync(Communicator& communicator, Backend& backend)
      : NoGradientSync({.communicates = true}), communicator_(communicator), clock_(backend.make_timer()) {}
  void sum_squared_norms(const Tensor& sum, const Tensor&) override { communicator_.broadcast(sum, 0); }
  CommunicationReport take_report() override { return clock_.take_report(); }

 protected:
  std::unique_ptr<Pending> start(const Tensor& grads) {
    clock_.start(grads);
    return communicator_.all_reduce(grads);
  }
  void wait_all(const std::vector<std::unique_ptr<Pending>>& pending) { communicator_.wait_all(pending); }
  void finished() { clock_.stop(); }

 private:
  Communicator& communicator_;
  ReductionClock clock_;
};

}  // namespace stagegpt
