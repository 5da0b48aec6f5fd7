// LayerNorm, alone and of a sum.
#include "stage2_cuda/kernels/layernorm.cuh"
#include "stage2_cuda/kernels/layernorm_backward.cuh"
#include "stage2_cuda/stream_backend.h"

namespace stagegpt::gpu {

void StreamBackend::do_layernorm_forward(const Tensor& out, const Tensor& mean, const Tensor& rstd,
                                         const Tensor& x, const Tensor& w, const Tensor& bias, double eps) {
  normalise({}, out, mean, rstd, x, {}, w, bias, eps);
}

void StreamBackend::do_residual_layernorm_forward(const Tensor& sum, const Tensor& out, const Tensor& mean,
                                                  const Tensor& rstd, const Tensor& x, const Tensor& residual,
                                                  const Tensor& w, const Tensor& bias, double eps) {
  normalise(sum, out, mean, rstd, x, residual, w, bias, eps);
}

void StreamBackend::do_layernorm_backward(const Grad& dx, const Grad& dw, const Grad& dbias,
                                          const Tensor& dout, const Tensor& x, const Tensor& w,
                                          const Tensor& mean, const Tensor& rstd) {
  const std::int64_t N = mean.numel(), C = w.numel();
  Tensor block_sums;  // (blocks,2C)
  if (dw.wanted() || dbias.wanted()) block_sums = allocate(DType::f32, {layernorm_blocks(N), 2 * C});
  by_type(x, [&]<class T>() {
    gpu::layernorm_backward<T>(stream_, dx.wanted() ? dx.tensor.data<T>() : nullptr, dx.accumulates(),
                               optional<float>(block_sums), dout.data<T>(), x.data<T>(), floats(w),
                               floats(mean), floats(rstd), N, C);
  });
  if (block_sums.defined()) sum_columns(dbias, dw, block_sums, C);
}

void StreamBackend::normalise(const Tensor& sum, const Tensor& out, const Tensor& mean, const Tensor& rstd,
                              const Tensor& x, const Tensor& residual, const Tensor& w, const Tensor& bias,
                              double eps) {
  by_type(x, [&]<class T>() {
    gpu::layernorm_forward<T>(stream_, out.data<T>(), optional<T>(sum), floats(mean), floats(rstd),
                              x.data<T>(), optional<T>(residual), floats(w), floats(bias),
                              static_cast<float>(eps), mean.numel(), w.numel());
  });
}

}  // namespace stagegpt::gpu
