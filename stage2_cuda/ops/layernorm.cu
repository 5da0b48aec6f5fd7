// LayerNorm, alone and of a sum.
#include "stage2_cuda/kernels/layernorm.cuh"
#include "stage2_cuda/kernels/layernorm_backward.cuh"
#include "stage2_cuda/stream_backend.h"

namespace stagegpt::gpu {

void StreamBackend::compute(const LayernormForward& op) {
  compute(ResidualLayernormForward{{}, op.out, op.mean, op.rstd, op.x, {}, op.w, op.bias, op.eps});
}

// Without a residual, the layernorm of x.
void StreamBackend::compute(const ResidualLayernormForward& op) {
  by_type(op.x, [&]<class T>() {
    gpu::layernorm_forward<T>(stream_, op.out.data<T>(), optional<T>(op.sum), floats(op.mean),
                              floats(op.rstd), op.x.data<T>(), optional<T>(op.residual), floats(op.w),
                              floats(op.bias), static_cast<float>(op.eps), op.mean.numel(), op.w.numel());
  });
}

void StreamBackend::compute(const LayernormBackward& op) {
  const std::int64_t N = op.mean.numel(), C = op.w.numel();
  Tensor block_sums;  // (blocks,2C)
  if (op.dw.wanted() || op.dbias.wanted()) block_sums = allocate(DType::f32, {layernorm_blocks(N), 2 * C});
  by_type(op.x, [&]<class T>() {
    gpu::layernorm_backward<T>(stream_, op.dx.wanted() ? op.dx.tensor.data<T>() : nullptr,
                               op.dx.accumulates(), optional<float>(block_sums), op.dout.data<T>(),
                               op.x.data<T>(), floats(op.w), floats(op.mean), floats(op.rstd), N, C);
  });
  if (block_sums.defined()) sum_columns(op.dbias, op.dw, block_sums, C);
}

}  // namespace stagegpt::gpu
