#pragma once

#include "common/autograd/tape.h"
#include "common/backend/op.h"

namespace stagegpt {

// out (B,T,C) = wte[ids] + wpe[p…p+T-1]; ids i32 (B,T), wte (Vp,C), wpe (P,C) with P >= p + T, where p is the
// content of position i32 (1), 0 if that is undefined. wte may be bf16 or quantised while the others are f32.
// Without wpe, only wte[ids]. A token whose id is Vp is not in this wte: its row is zero, and it contributes
// nothing to dwte.
struct EmbeddingForward {
  static constexpr const char* kName = "embedding_forward";
  const Tensor &out, &ids, &wte, &wpe, &position;

  void check(const Checks& checks) const;
  Work work() const;
  auto operands() const { return std::array{&out, &ids, &wte}; }
};

// The gradients of EmbeddingForward without a position.
struct EmbeddingBackward {
  static constexpr const char* kName = "embedding_backward";
  const Grad &dwte, &dwpe;
  const Tensor &dout, &ids;

  void check(const Checks& checks) const;
  Work work() const;
  auto operands() const { return std::array{&dwte.tensor, &dout, &ids}; }
};

// The name on the tape, by which watches know it.
inline constexpr std::string_view kEmbedding = "embedding";

// wte[ids] + wpe[position] (B,T,C); ids i32 (B,T), wte (Vp,C), wpe (P,C). Without wpe, an empty Var, it is
// wte[ids]. The id Vp has no row in wte: it counts as zero. In inference the first token may have another
// position than 0, which is in `first` i32 (1).
Var embedding(Tape& tape, const Tensor& ids, Var wte, Var wpe, const Tensor& first = {});

}  // namespace stagegpt
