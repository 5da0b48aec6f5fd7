// --comm per-tensor: after backward, one all-reduce per parameter, one after the other. The simplest method;
// the network's latency occurs once for each reduction.
#pragma once

#include "stage1_mpi/sync/all_reduce_sync.h"

namespace stagegpt {

class PerTensorSync final : public AllReduceSync {
 public:
  using AllReduceSync::AllReduceSync;

  void finish(Parameters& parameters) override {
    for (const Parameter& row : parameters.table().rows()) {
      start(parameters.grads().slice(row.offset, {row.arena_shape().numel()}))->wait();
    }
    finished();
  }
};

}  // namespace stagegpt
