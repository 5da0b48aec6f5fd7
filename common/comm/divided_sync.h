// Base class of the synchronisations that divide the optimizer among the ranks (ZeRO-1): each rank updates
// the parts of the weights that it owns, and holds only the moments of these parts. Then all ranks get all
// weights. Rajbhandari et al., arXiv:1910.02054, section 5.1.
//
// In bf16 the ranks send the weights as ops read them: the shadow, of half the bytes, and the parameters of
// layernorms in f32. The other weights in f32 are then up to date on their owner only, until
// gather_weights().
#pragma once

#include <memory>
#include <vector>

#include "common/comm/communicator.h"
#include "common/comm/norm_weights.h"
#include "common/comm/reduction_clock.h"

namespace stagegpt {

class DividedSync : public GradientSync {
 public:
  // Both are borrowed.
  DividedSync(Communicator& communicator, Backend& backend, SyncTraits traits = {})
      : GradientSync(traits), communicator_(communicator), backend_(backend), clock_(backend.make_timer()) {}

  void ready(Parameters&, int) override {}

  void share_weights(Parameters& parameters) override {
    const Tensor& shadow = parameters.shadow();
    clock_.start();
    if (shadow.defined() && communicator_.size() > 1) {
      const NormWeights norms(backend_, parameters, owned(shadow.numel()));
      pending_.push_back(communicator_.all_reduce(norms.packed()));
      gather(shadow);
      norms.unpack();
    } else {
      gather(parameters.weights());
    }
    clock_.stop();
  }

  void gather_weights(Parameters& parameters) override {
    if (parameters.shadow().defined()) gather(parameters.weights());
  }

  CommunicationReport take_report() override { return clock_.take_report(); }

 protected:
  // Distributes what each rank has in its parts of an arena, and waits for all operations.
  virtual void gather(const Tensor& arena) = 0;
  // Waits for all operations. A single one need not be polled.
  void wait() {
    pending_.size() == 1 ? pending_[0]->wait() : communicator_.wait_all(pending_);
    pending_.clear();
  }

  Communicator& communicator_;
  Backend& backend_;
  ReductionClock clock_;
  std::vector<std::unique_ptr<Pending>> pending_;
};

}  // namespace stagegpt
