// Gradient synchronisation of a model on several tensor ranks: that of the data ranks, and then the sum over
// tensor ranks of the gradients of the parameters that all tensor ranks hold.
#pragma once

#include <algorithm>
#include <utility>

#include "common/backend/ops/sums.h"
#include "common/comm/communicator.h"
#include "common/comm/gradient_sync.h"

namespace stagegpt {

class TensorSync final : public GradientSync {
 public:
  // `data` combines the gradients of the data ranks. `shared_end`: where those parameters end in the arena
  // (parts.h). All are borrowed.
  TensorSync(GradientSync& data, Communicator& tensor_ranks, Backend& backend, std::int64_t shared_end)
      : data_(data), tensor_ranks_(tensor_ranks), backend_(backend), shared_end_(shared_end) {
    check(!data.traits().norm_in_blocks, "tensor ranks: no norms of blocks");
  }

  // Each part that the data ranks divide is cut in two: shared parameters, divided parameters. One may be
  // empty.
  ArenaParts owned(std::int64_t arena_size) const override {
    ArenaParts cut;
    for (const auto& [begin, end] : data_.owned(arena_size)) {
      const std::int64_t middle = std::clamp(shared_end_, begin, end);
      cut.push_back({begin, middle});
      cut.push_back({middle, end});
    }
    return cut;
  }

  void ready(Parameters& parameters, int i) override { data_.ready(parameters, i); }

  void finish(Parameters& parameters) override {
    data_.finish(parameters);
    const ArenaParts parts = owned(parameters.weights().numel());
    for (std::size_t shared = 0; shared < parts.size(); shared += 2) {
      if (parts[shared].size() == 0) continue;
      const Tensor grads = parameters.grads(parts[shared]);
      bytes_reduced_ += static_cast<std::int64_t>(grads.bytes());
      tensor_ranks_.all_reduce(grads)->wait();
    }
  }

  // `parts` (2P): for each part of the data ranks, shared and divided parameters. Only tensor rank 0 counts
  // the former, so that the norm has each parameter once. The ranks' sums are added in the order of tensor
  // ranks.
  void sum_squared_norms(const Tensor& sum, const Tensor& parts) override {
    const std::int64_t P = parts.numel() / 2;
    const std::int64_t first = tensor_ranks_.rank() == 0 ? 0 : 1;
    const Tensor data_parts = backend_.allocate(DType::f64, {P});
    for (std::int64_t i = 0; i < P; ++i)
      backend_.run(Sum{data_parts.slice(i, {1}), parts.slice(2 * i + first, {2 - first})});
    const Tensor all = backend_.allocate(DType::f64, {tensor_ranks_.size()}),
                 own = P == 1 ? data_parts : backend_.allocate(DType::f64, {1});
    data_.sum_squared_norms(own, data_parts);
    backend_.copy(all.slice(tensor_ranks_.rank(), {1}), own);
    tensor_ranks_.all_gather(all)->wait();
    backend_.run(Sum{sum, all});
  }

  void share_weights(Parameters& parameters) override { data_.share_weights(parameters); }
  void gather_weights(Parameters& parameters) override { data_.gather_weights(parameters); }
  CommunicationReport take_report() override {
    CommunicationReport report = data_.take_report();
    report.bytes_reduced += std::exchange(bytes_reduced_, 0);
    return report;
  }

 private:
  GradientSync& data_;
  Communicator& tensor_ranks_;
  Backend& backend_;
  std::int64_t shared_end_, bytes_reduced_ = 0;
};

}  // namespace stagegpt
