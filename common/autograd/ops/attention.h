#pragma once

#include "common/autograd/tape.h"
#include "common/backend/op.h"

namespace stagegpt {

// Causal self-attention of n_head heads over packed queries, keys and values: for each head
// out = dropout(softmax(scale·q·kᵀ + causal mask)) · v. qkv (B,T,3C), out (B,T,C); lse (B,NH,T) receives
// the logarithm of each softmax's denominator. GPT-2's scale is 1/√HS. Element ((b·NH + h)·T + t)·T + s of
// the dropout sequence belongs to query t and key s. Vaswani et al., arXiv:1706.03762, section 3.2.
struct AttentionForward {
  static constexpr const char* kName = "attention_forward";
  const Tensor &out, &lse, &qkv;
  int n_head;
  double scale;
  const Dropout& dropout;

  void check(const Checks& checks) const;
  Work work() const;
  auto operands() const { return std::array{&out, &qkv}; }
};

// The gradients of AttentionForward.
struct AttentionBackward {
  static constexpr const char* kName = "attention_backward";
  const Grad& dqkv;
  const Tensor &dout, &out, &lse, &qkv;
  int n_head;
  double scale;
  const Dropout& dropout;

  void check(const Checks& checks) const;
  Work work() const;
  bool is_wanted() const { return dqkv.wanted(); }
  auto operands() const { return std::array{&dqkv.tensor, &dout, &out, &qkv}; }
};

// Attention for inference, without dropout and with a cache of keys and values. The T new tokens of each
// sequence have the indices first … first + T - 1; each attends to all tokens up to itself. Row t of cache
// (B,P,2C) holds the key and the value of token t: rows before `first` are read, rows of the new tokens are
// written. qkv (B,T,3C), out (B,T,C), first + T <= P. `first` is also in position i32 (1), if that is
// defined: repeated work (Backend::repeat()) reads it there.
struct CachedAttentionForward {
  static constexpr const char* kName = "cached_attention_forward";
  const Tensor &out, &cache, &qkv;
  int n_head;
  double scale;
  std::int64_t first;
  const Tensor& position;

  void check(const Checks& checks) const;
  Work work() const;
  auto operands() const { return std::array{&out, &cache, &qkv}; }
};

// The name on the tape, by which watches know it.
inline constexpr std::string_view kAttention = "attention";

// Causal self-attention with n_head heads: qkv (B,T,3C) -> (B,T,C). The scores are scale·q·k; `dropout` acts
// on the probabilities.
Var attention(Tape& tape, Var qkv, int n_head, double scale, const Dropout& dropout = {});

// For inference: attention of T new tokens, the first of which has index `first`, with a cache of keys and
// values (B,P,2C), to which those of the new tokens are added: qkv (B,T,3C) -> (B,T,C). `position`: as above.
Var cached_attention(Tape& tape, Var qkv, const Tensor& cache, int n_head, double scale, std::int64_t first,
                     const Tensor& position);

}  // namespace stagegpt
