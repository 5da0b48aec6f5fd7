// Gradient synchronisation with --reproducible: the upper levels of the binary tree; gradient_tree.h has the
// lower levels. At distance 1, 2, 4, … two ranks exchange their sums and add them: a + b on one rank, b + a
// on the other, which gives the same bits.
#pragma once

#include "common/backend/backend.h"
#include "common/comm/communicator.h"
#include "common/comm/reduction_clock.h"

namespace stagegpt {

class TreeSync final : public NoGradientSync {
 public:
  // The number of ranks must be a power of two. Both are borrowed.
  TreeSync(Communicator& communicator, Backend& backend)
      : communicator_(communicator), backend_(backend), clock_(backend.make_timer()) {}

  bool communicates() const override { return true; }
  void finish(Parameters& parameters) override;
  void sum_squared_norms(const Tensor& sum, const Tensor&) override { communicator_.broadcast(sum, 0); }
  CommunicationReport take_report() override { return clock_.take_report(); }

 private:
  Communicator& communicator_;
  Backend& backend_;
  ReductionClock clock_;
};

}  // namespace stagegpt
