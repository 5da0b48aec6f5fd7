// Tensor and sequence parallelism (Shoeybi et al., arXiv:1909.08053, section 3; Korthikanti et al.,
// arXiv:2205.05198, section 4.2): R tensor ranks compute one model together. With N = B·T rows, and N/R
// rounded up,
//
//   residual stream, layernorms   rows: each rank has N/R of them               (N/R,C)
//   first linear layer            columns of the output: c_attn by heads, c_fc  (N,C) → (N,3C/R), (N,4C/R)
//   attention, activation         heads, channels: nothing to send
//   second linear layer           columns of the weight: each rank has a summand (N,4C/R) → (N,C)
//   embedding, head               tokens of the vocabulary                      (N,C) → (N,V/R)
//
// `gathered` stands before each first linear layer and before the head, `scattered_sum` after each second one
// and after the embedding. Each is the other's backward. With one rank, these functions are what one process
// computes.
#pragma once

#include <string_view>

#include "common/autograd/tape.h"
#include "common/comm/communicator.h"
#include "common/parallel/parts.h"

namespace stagegpt {

// The shape (N/R,C) of a rank's rows of N rows (…,C). One rank has the shape itself.
Shape rows_of_rank(const Communicator& ranks, const Shape& shape);

// The names on the tape.
inline constexpr std::string_view kGathered = "gathered";
inline constexpr std::string_view kScatteredSum = "scattered_sum";

// From each rank's rows (N/R,C) to all rows, in the order of ranks, as `shape` (B,T,C). If the ranks' rows
// are more than N, the last ones are left out. Forward: all-gather. Backward: reduce-scatter.
Var gathered(Tape& tape, Communicator& ranks, Var rows, const Shape& shape);

// From each rank's summand (B,T,C) to the rank's rows (N/R,C) of the sum; rows beyond N are zero. Forward:
// reduce-scatter. Backward: all-gather.
Var scattered_sum(Tape& tape, Communicator& ranks, Var summand);

// This rank's rows (N/R,C) of wte[ids] + wpe[position]; ids i32 (B,T), wte (rows,C): this rank's tokens, wpe
// (P,C) on one rank, empty on the others.
Var vocabulary_embedding(Tape& tape, Communicator& ranks, const Tensor& ids, Var wte, Var wpe,
                         const VocabularyPart& part, const Tensor& first = {});

// Mean cross-entropy (1) of targets i32 (B,T), the same bits on every rank; logits (B,T,…) of this rank's
// tokens. Each rank sends two numbers for each row: lse over its tokens, and the target's logit if it has it.
Var vocabulary_cross_entropy(Tape& tape, Communicator& ranks, Var logits, const Tensor& targets,
                             const VocabularyPart& part);

// For inference: the logits (B,T,Vp) of all tokens, from those of this rank's tokens, (B,T,…).
Var all_logits(Tape& tape, Communicator& ranks, Var logits, std::int64_t vocab_size);

}  // namespace stagegpt
