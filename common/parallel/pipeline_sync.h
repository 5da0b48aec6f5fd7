// Gradient synchronisation of a model in several stages: that of each stage's ranks, one norm of all stages,
// and, if the head is the embedding's matrix, one gradient for both: the last stage sends its gradient of the
// matrix to the first one, which adds it to its own, updates the matrix, and sends it back. So the first
// stage owns the matrix. The last one has an exact copy, without moments, which is in no norm.
#pragma once

#include <algorithm>
#include <optional>

#include "common/backend/ops/elementwise.h"
#include "common/backend/ops/sums.h"
#include "common/comm/communicator.h"
#include "common/comm/gradient_sync.h"

namespace stagegpt {

class PipelineSync final : public GradientSync {
 public:
  // `of_stage` combines the gradients of a stage's ranks. `tied`: on the first and on the last stage, the
  // row of the matrix that both have in the stage's table. The first three are borrowed.
  PipelineSync(GradientSync& of_stage, Communicator& stages, Backend& backend, const ParameterTable& table,
               std::optional<int> tied)
      : of_stage_(of_stage), stages_(stages), backend_(backend), tied_(tied) {
    if (tied) {
      const Parameter& row = table[static_cast<std::size_t>(*tied)];
      matrix_ = {row.offset, row.offset + row.arena_shape().numel()};
    }
    check(!of_stage.traits().norm_in_blocks, "stages: no norms of blocks");
  }

  // The matrix stands at the beginning of the last stage's arena, or of what its tensor ranks divide.
  ArenaParts owned(std::int64_t arena_size) const override {
    ArenaParts parts = of_stage_.owned(arena_size);
    if (!tied_ || is_first()) return parts;
    for (ArenaRange& part : parts) {
      if (part.end <= matrix_.begin) continue;
      check(part.begin >= matrix_.begin, "stages: a part of the arena has something before the tied matrix");
      part.begin = std::clamp(matrix_.end, part.begin, part.end);
    }
    return parts;
  }

  // The gradient of the tied matrix is complete only in finish().
  void ready(Parameters& parameters, int i) override {
    if (i != tied_) of_stage_.ready(parameters, i);
  }

  void finish(Parameters& parameters) override {
    if (tied_) add_tied(matrix_of(parameters.grads()));
    of_stage_.finish(parameters);
  }

  // The stages' sums are added in the order of stages.
  void sum_squared_norms(const Tensor& sum, const Tensor& parts) override {
    const Tensor all = backend_.allocate(DType::f64, {stages_.size()}),
                 own = parts.numel() == 1 ? parts : backend_.allocate(DType::f64, {1});
    of_stage_.sum_squared_norms(own, parts);
    backend_.copy(all.slice(stages_.rank(), {1}), own);
    stages_.all_gather(all)->wait();
    backend_.run(Sum{sum, all});
  }

  void share_weights(Parameters& parameters) override {
    of_stage_.share_weights(parameters);
    const Tensor& read = parameters.shadow().defined() ? parameters.shadow() : parameters.weights();
    if (tied_) copy_tied(matrix_of(read));
  }

  void gather_weights(Parameters& parameters) override {
    of_stage_.gather_weights(parameters);
    if (tied_ && parameters.shadow().defined()) copy_tied(matrix_of(parameters.weights()));
  }

  CommunicationReport take_report() override { return of_stage_.take_report(); }

 private:
  bool is_first() const { return stages_.rank() == 0; }
  int last() const { return stages_.size() - 1; }
  Tensor matrix_of(const Tensor& arena) const { return arena.slice(matrix_.begin, {matrix_.size()}); }

  void add_tied(const Tensor& grad) {
    if (!is_first()) return stages_.send(grad, 0)->wait();
    const Tensor lasts = backend_.allocate(grad.dtype(), grad.shape());
    stages_.receive(lasts, last())->wait();
    backend_.run(Add{grad, grad, lasts});
  }

  void copy_tied(const Tensor& matrix) {
    (is_first() ? stages_.send(matrix, last()) : stages_.receive(matrix, 0))->wait();
  }

  GradientSync& of_stage_;
  Communicator& stages_;
  Backend& backend_;
  std::optional<int> tied_;
  ArenaRange matrix_;  // in the arena, if it is tied
};

}  // namespace stagegpt
