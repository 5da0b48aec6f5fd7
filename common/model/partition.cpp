#include "common/model/partition.h"

#include "common/autograd/ops/cross_entropy.h"
#include "common/autograd/ops/embedding.h"

namespace stagegpt {

Var Partition::enter(Tape&, Var rows, const Shape&) const { return rows; }

Var Partition::leave(Tape&, Var summand) const { return summand; }

Var Partition::embed(Tape& tape, const Tensor& ids, Var wte, Var wpe) const {
  return embedding(tape, ids, std::move(wte), std::move(wpe));
}

Var Partition::loss(Tape& tape, Var logits, const Tensor& targets, std::int64_t vocab_size) const {
  return cross_entropy_loss(tape, std::move(logits), targets, vocab_size);
}

Var Partition::all_logits(Tape&, Var logits) const { return logits; }

Dropout Partition::on_rows(Dropout dropout, const Tensor&) const { return dropout; }

const Partition& Partition::none() {
  static const Partition one;
  return one;
}

}  // namespace stagegpt
