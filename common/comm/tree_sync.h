// How ranks combine gradients with --reproducible: the upper levels of the tree whose lower ones are
// gradient_tree.h's. At distance 1, 2, 4, … two ranks exchange what they have and add it: a + b on one, b + a
// on the other, which are the same bits.
#pragma once

#include "common/backend/backend.h"
#include "common/comm/communicator.h"
#include "common/comm/reduction_clock.h"

namespace stagegpt {

class TreeSync final : public NoGradientSync {
 public:
  // Over a number of ranks that is a power of two. Both are borrowed.
  TreeSync(Communicator& communicator, Backend& backend)
      : communicator_(communicator), backend_(backend), clock_(backend.make_timer()) {}

  void finish(Parameters& parameters) override;
  void sum_squared_norm(const Tensor& squared_norm) override { communicator_.broadcast(squared_norm, 0); }
  CommunicationReport take_report() override { return clock_.take_report(); }

 private:
  Communicator& communicator_;
  Backend& backend_;
  ReductionClock clock_;
};

}  // namespace stagegpt
