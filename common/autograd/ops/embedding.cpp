#include "common/autograd/ops/embedding.h"

namespace stagegpt {

Var embedding(Tape& tape, const Tensor& ids, Var wte, Var wpe) {
  Backend& be = tape.backend();
  const Shape& bt = ids.shape();
  const Tensor& like = wpe.value().defined() ? wpe.value() : wte.value();
  Tensor out = be.allocate(like.dtype(), {bt[0], bt[1], like.shape()[1]});  // (B,T,C)
  be.embedding_forward(out, ids, wte.value(), wpe.value());
  return tape.record("embedding", {wte, wpe}, out,
                     [=, &be](const Tensor& dout, Grads g) { be.embedding_backward(g[0], g[1], dout, ids); });
}

}  // namespace stagegpt
