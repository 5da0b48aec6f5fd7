// Attention in training.
#include "stage2_cuda/kernels/attention_flash_backward.cuh"
#include "stage2_cuda/kernels/attention_materialised.cuh"
#include "stage2_cuda/stream_backend.h"
#include "stage2_cuda/wgmma.h"

namespace stagegpt::gpu {
namespace {

AttentionSize attention_size(const Tensor& qkv, int n_head, double scale) {
  const Shape& s = qkv.shape();
  return {s[0], s[1], n_head, s[2] / 3 / n_head, static_cast<float>(scale)};
}

// Calls run<Maths, T>(): how flash attention multiplies, and the type of its tensors.
template <class Run>
void by_math(const Tensor& qkv, Precision precision, const Run& run) {
  if (qkv.dtype() == DType::bf16) return run.template operator()<Bf16Math, Bf16>();
  if (precision == Precision::tf32) return run.template operator()<Tf32Math, float>();
  run.template operator()<F32Math, float>();
}

}  // namespace

void StreamBackend::compute(const AttentionForward& op) {
  const AttentionSize s = attention_size(op.qkv, op.n_head, op.scale);
  if (is_wgmma(s, op.qkv.dtype()))
    return wgmma_attention_forward(stream_, op.out.data<Bf16>(), floats(op.lse), op.qkv.data<Bf16>(), s,
                                   op.dropout);
  if (is_flash(s, op.qkv.dtype())) {
    return by_math(op.qkv, precision_, [&]<class Maths, class T>() {
      flash_forward<Maths>(stream_, op.out.data<T>(), floats(op.lse), op.qkv.data<T>(), op.dropout, s);
    });
  }
  const Tensor scores = allocate(DType::f32, {s.scores()});  // (NH,T,T)
  materialised_forward(*gemm_, stream_, floats(op.out), floats(op.lse), floats(op.qkv), op.dropout, s,
                       floats(scores));
}

void StreamBackend::compute(const AttentionBackward& op) {
  const AttentionSize s = attention_size(op.qkv, op.n_head, op.scale);
  if (is_wgmma(s, op.qkv.dtype())) {
    const Tensor scratch = allocate(DType::f32, {wgmma_scratch(s)});
    return wgmma_attention_backward(stream_, op.dqkv.tensor.data<Bf16>(), op.dqkv.accumulates(),
                                    op.dout.data<Bf16>(), op.out.data<Bf16>(), floats(op.lse),
                                    op.qkv.data<Bf16>(), s, op.dropout, floats(scratch));
  }
  if (is_flash(s, op.qkv.dtype())) {
    const Tensor statistics = allocate(DType::f32, {2 * s.B * s.NH * padded_rows(s)});
    return by_math(op.qkv, precision_, [&]<class Maths, class T>() {
      flash_backward<Maths>(stream_, op.dqkv.tensor.data<T>(), op.dqkv.accumulates(), op.dout.data<T>(),
                            op.out.data<T>(), floats(op.lse), op.qkv.data<T>(), op.dropout, s,
                            floats(statistics));
    });
  }
  const Tensor scores = allocate(DType::f32, {2 * s.scores()});  // (2,NH,T,T)
  materialised_backward(*gemm_, stream_, floats(op.dqkv), op.dqkv.accumulates(), floats(op.dout),
                        floats(op.out), floats(op.lse), floats(op.qkv), op.dropout, s, floats(scores));
}

bool StreamBackend::fits_flash(const AttentionSize& size) const {
  return size.HS <= (is_7_5_ ? kFlashHeadSizeOf75 : kFlashHeadSize) && size.scale > 0;
}

bool StreamBackend::is_flash(const AttentionSize& size, DType dtype) const {
  const bool fits = fits_flash(size);
  if (dtype == DType::bf16 && !fits) {
    user_error("--precision: bf16 needs heads of at most ", kFlashHeadSize,
               " channels and a positive scale of attention, got ", size.HS, " and ", size.scale);
  }
  return fits && (attention_ != GpuAttention::materialised || dtype == DType::bf16);
}

bool StreamBackend::is_wgmma(const AttentionSize& size, DType dtype) const {
  if (!wgmma_ || dtype != DType::bf16) return false;
  const bool computes = wgmma_computes(size);
  if (!computes && attention_ == GpuAttention::flash_wgmma) {
    user_error(
        "--gpu-attention: flash-wgmma needs heads of a multiple of 8 channels, at most 128, and a positive "
        "scale, got ",
        size.HS, " channels and a scale of ", size.scale);
  }
  return computes;
}

}  // namespace stagegpt::gpu
