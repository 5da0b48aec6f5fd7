// --comm flat: after backward, one all-reduce of the whole arena. Its latency occurs only once.
#pragma once

#include "stage1_mpi/sync/all_reduce_sync.h"

namespace stagegpt {

class FlatSync final : public AllReduceSync {
 public:
  using AllReduceSync::AllReduceSync;

  void finish(Parameters& parameters) override {
    start(parameters.grads())->wait();
    finished();
  }
};

}  // namespace stagegpt
