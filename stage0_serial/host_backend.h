// Base of the backends whose device is the host: memory is host memory, and ops are synchronous. It has the
// ops that both of them compute alike.
#pragma once

#include <cstring>
#include <memory>
#include <utility>

#include "common/autograd/ops/dropout.h"
#include "common/autograd/ops/norm_linear.h"
#include "common/backend/backend.h"
#include "common/backend/ops/elementwise.h"
#include "common/backend/ops/largest_logits.h"
#include "common/backend/ops/sums.h"
#include "stage0_serial/host_memory.h"
#include "stage0_serial/kernels/adamw.h"
#include "stage0_serial/kernels/embedding.h"
#include "stage0_serial/kernels/largest_logits.h"

namespace stagegpt {

class HostBackend : public Backend, protected Kernels {
 public:
  explicit HostBackend(std::unique_ptr<MemorySource> memory = std::make_unique<HostMemory>())
      : Backend(std::move(memory), this) {}
  void synchronize() override {}

 private:
  using Kernels::compute;
  void compute(const Copy& op) override { std::memcpy(op.out.raw(), op.in.raw(), op.in.bytes()); }
  void compute(const IdsInPart& op) override {
    naive::ids_in_part(op.out.data<std::int32_t>(), op.in.data<std::int32_t>(), op.in.numel(), op.first,
                       op.count, op.absent);
  }
  void compute(const NormLinearForward& op) override { op.composed(*this); }
  // The same factors, 0 or 1/(1-p), for values and for gradients.
  void compute(const DropoutForward& op) override {
    compute(DropoutBackward{{op.out, GradMode::overwrite}, op.x, op.dropout});
  }
  void compute(const AddNormBlocks& op) override { compute(Sum{op.out, op.blocks}); }
  void compute(const Sum& op) override {
    *op.out.data<double>() = naive::sum(op.x.data<double>(), op.x.numel());
  }
  void compute(const LargestLogits& op) override {
    largest_logits(op.values.data<float>(), op.ids.data<std::int32_t>(), op.logits.data<float>(),
                   op.logits.numel(), op.values.numel());
  }
  void do_copy_from_host(void* out, const void* in, std::size_t bytes) override {
    std::memcpy(out, in, bytes);
  }
  void do_copy_to_host(std::span<const HostCopy> copies) override {
    for (const auto& [out, in] : copies) std::memcpy(out.data(), in.raw(), out.size());
  }
};

}  // namespace stagegpt
