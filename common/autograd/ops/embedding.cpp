#include "common/autograd/ops/embedding.h"

namespace stagegpt {

Var embedding(Tape& tape, const Tensor& ids, Var wte, Var wpe) {
  Backend& be = tape.backend();
  const Shape& bt = ids.shape();
  Tensor out = be.allocate(wpe.value().dtype(), {bt[0], bt[1], wpe.value().shape()[1]});  // (B,T,C)
  be.embedding_forward(out, ids, wte.value(), wpe.value());
  return tape.record("embedding", {wte, wpe}, out,
                     [=, &be](const Tensor& dout, Grads g) { be.embedding_backward(g[0], g[1], dout, ids); });
}

}  // namespace stagegpt
