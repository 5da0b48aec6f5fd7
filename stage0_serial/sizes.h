// The size arguments of kernels, from the shapes of an op's tensors.
#pragma once

#include "common/tensor/quantised_rows.h"
#include "stage0_serial/kernels/attention.h"
#include "stage0_serial/kernels/attention_cached.h"
#include "stage0_serial/kernels/cross_entropy.h"
#include "stage0_serial/kernels/embedding.h"
#include "stage0_serial/kernels/linear.h"

namespace stagegpt {

// A tensor's elements; nullptr if the tensor is absent.
template <class T>
T* optional_data(const Tensor& tensor) {
  return tensor.defined() ? tensor.data<T>() : nullptr;
}

// The rows of wpe (P,C) from that on which `position` names; nullptr if wpe is absent.
template <class T>
T* rows_from(const Tensor& position, const Tensor& wpe) {
  if (!wpe.defined() || !position.defined()) return optional_data<T>(wpe);
  return wpe.data<T>() + *position.data<std::int32_t>() * wpe.shape()[1];
}

// `out` is (B,T,C); wte and wpe, or their gradients, may be absent.
inline EmbeddingSize embedding_size(const Tensor& out, const Tensor& wte, const Tensor& wpe) {
  const Shape& s = out.shape();
  return {s[0], s[1], s[2], wte.defined() ? wte.shape()[0] : 0, wpe.defined() ? wpe.shape()[0] : 0};
}

inline LinearSize linear_size(const Tensor& x, const Tensor& w) {
  return {x.numel() / columns_of(w), columns_of(w), w.shape()[0]};
}

inline AttentionSize attention_size(const Tensor& qkv, int n_head, double scale) {
  const Shape& s = qkv.shape();
  return {s[0], s[1], n_head, s[2] / 3 / n_head, scale};
}

inline CachedAttentionSize cached_attention_size(const Tensor& cache, const Tensor& qkv, int n_head,
                                                 double scale, std::int64_t first) {
  const Shape& s = qkv.shape();
  return {s[0], s[1], n_head, s[2] / 3 / n_head, cache.shape()[1], first, scale};
}

inline CrossEntropySize cross_entropy_size(const Tensor& logits, std::int64_t vocab_size) {
  const std::int64_t padded = logits.shape()[-1];
  return {logits.numel() / padded, vocab_size, padded};
}

}  // namespace stagegpt
