// The ops that generation needs beside those of training: attention over a cache, linear layers of one row,
// the largest logits, and tokens drawn from all of them.
#include "stage2_cuda/kernels/attention.cuh"
#include "stage2_cuda/kernels/attention_token.cuh"
#include "stage2_cuda/kernels/draw_tokens.cuh"
#include "stage2_cuda/kernels/matrix_vector.cuh"
#include "stage2_cuda/stream_backend.h"
#include "stage2_cuda/wgmma.h"

namespace stagegpt::gpu {

void StreamBackend::compute(const CachedAttentionForward& op) {
  const Shape& shape = op.qkv.shape();
  const CachedAttentionSize s{shape[0],
                              shape[1],
                              op.n_head,
                              shape[2] / 3 / op.n_head,
                              op.cache.shape()[1],
                              op.first,
                              static_cast<float>(op.scale)};
  by_type(op.qkv, [&]<class T>() {
    T *out = op.out.data<T>(), *cache = op.cache.data<T>();
    const T* qkv = op.qkv.data<T>();
    if (s.T == 1) {
      const TokenParts parts(s);
      const Tensor scratch = allocate(DType::f32, {parts.scratch_size});
      return token_attention(stream_, out, cache, qkv, optional<std::int32_t>(op.position), floats(scratch),
                             counters(parts.heads), s);
    }
    store_rows(stream_, cache, qkv, s);
    // The beginning of a text: all keys are those of its tokens, as in training.
    if (s.first == 0 && is_flash_prompt({s.B, s.T, s.NH, s.HS, s.scale})) {
      const Tensor lse = allocate(DType::f32, {s.B, s.NH, s.T});
      return compute(AttentionForward{op.out, lse, op.qkv, op.n_head, op.scale, {}});
    }
    cached_attention(stream_, out, cache, qkv, s);
  });
}

bool StreamBackend::is_flash_prompt(const AttentionSize& size) const {
  if (attention_ == GpuAttention::materialised) return false;
  return attention_ == GpuAttention::flash_wgmma ? wgmma_computes(size) : fits_flash(size);
}

void StreamBackend::compute(const NormLinearForward& op) {
  if (!is_row(op.x)) return op.composed(*this);
  by_type(op.x, [&]<class T>() {
    const RowInput<T> row{op.x.data<T>(),    optional<T>(op.sum),  optional<T>(op.residual),
                          floats(op.norm_w), floats(op.norm_bias), static_cast<float>(op.eps)};
    multiply_row(op.out, {}, row, op.w, op.bias, op.activation);
  });
}

void StreamBackend::compute(const LargestLogits& op) {
  const std::int64_t n = op.logits.numel(), k = op.values.numel();
  const Tensor scratch = allocate(DType::f64, {largest_scratch_size(n, k)});  // 64 bits for each key
  gpu::largest_logits(stream_, floats(op.values), op.ids.data<std::int32_t>(), floats(op.logits), n,
                      static_cast<int>(k), static_cast<LogitKey*>(scratch.raw()), counters(1));
}

void StreamBackend::compute(const DrawTokens& op) {
  const DrawSize s{op.ids.numel(), op.logits.shape()[-1], op.vocab_size, op.temperature, op.key, op.element};
  const Tensor scratch = allocate(DType::f64, {s.scratch_size()});
  gpu::draw_tokens(stream_, op.ids.data<std::int32_t>(), floats(op.logits), s, scratch.data<double>(),
                   counters(s.rows));
}

bool StreamBackend::is_row(const Tensor& x, std::int64_t most) const {
  const std::int64_t B = x.shape()[0], I = x.shape()[-1];
  return rows_by_vector_ && I <= kLongestRow && B <= most && x.shape() == Shape{B, 1, I};
}

bool StreamBackend::multiplied_rows(const Tensor& out, const Tensor& pre, const Tensor& x, const Tensor& w,
                                    const Tensor& bias, Activation activation) {
  // A weight in bf16 beside x in f32: 2 bytes of an element are read for each row, where a product takes 10,
  // for a copy in f32.
  constexpr std::int64_t kFew = 4;
  if (!is_row(x, w.dtype() == x.dtype() ? 1 : kFew)) return false;
  const std::int64_t B = x.shape()[0], O = w.shape()[0], I = w.shape()[1];
  const auto row = [&](const Tensor& all, std::int64_t b) {
    return all.defined() ? all.slice(b * O, {1, 1, O}) : Tensor();
  };
  by_type(x, [&]<class T>() {
    for (std::int64_t b = 0; b < B; ++b)
      multiply_row(row(out, b), row(pre, b), RowInput<T>{x.data<T>() + b * I}, w, bias, activation);
  });
  return true;
}

template <class T>
void StreamBackend::multiply_row(const Tensor& out, const Tensor& pre, const RowInput<T>& row,
                                 const Tensor& w, const Tensor& bias, Activation activation) {
  by_type(w, [&]<class Weight>() {
    if constexpr (std::is_same_v<T, float> || std::is_same_v<T, Weight>) {
      matrix_vector<T, Weight>(stream_, out.data<T>(), optional<T>(pre), row, w.data<Weight>(),
                               optional<T>(bias), activation, w.shape()[0], w.shape()[1]);
    } else {
      check(false, "a row in bf16 and a weight in f32");
    }
  });
}

}  // namespace stagegpt::gpu
