// How a model is divided among the ranks that compute it together. Gpt2 asks a Partition wherever a rank may
// have only a part of something, and knows nothing else about ranks. The default is one rank that has
// everything; across_ranks.h has the other one.
#pragma once

#include "common/autograd/tape.h"
#include "common/model/parameters.h"

namespace stagegpt {

class Partition {
 public:
  virtual ~Partition() = default;

  // What this rank holds of the parameters.
  virtual ParameterTable own(const ParameterTable& whole) const { return whole; }

  // The residual stream and its layernorms may be divided by rows. From this rank's rows (R,C) to all rows
  // (B,T,C), which a branch reads; `shape` is (B,T,C).
  virtual Var enter(Tape& tape, Var rows, const Shape& shape) const;
  // From a branch's output (B,T,C), of which each rank may have a summand, to this rank's rows of the sum.
  virtual Var leave(Tape& tape, Var summand) const;
  // A bias of such an output: it must be in one summand only. An empty Var in the others.
  virtual Var once(Var bias) const { return bias; }

  // This rank's rows of the embedding of ids (B,T), and the mean cross-entropy (1) of targets (B,T). wte and
  // the logits (B,T,…) may have only some tokens of the vocabulary.
  virtual Var embed(Tape& tape, const Tensor& ids, Var wte, Var wpe) const;
  virtual Var loss(Tape& tape, Var logits, const Tensor& targets, std::int64_t vocab_size) const;
  // For inference: the logits (B,T,Vp) of all tokens.
  virtual Var all_logits(Tape& tape, Var logits) const;

  // Which elements of a dropout over the whole tensor this rank's are: of `rows` (R,C), or of its heads.
  virtual Dropout on_rows(Dropout dropout, const Tensor& rows) const;
  virtual Dropout on_heads(Dropout dropout) const { return dropout; }

  // One rank that has everything.
  static const Partition& none();
};

}  // namespace stagegpt
