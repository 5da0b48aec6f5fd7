#include "common/autograd/ops/dropout.h"

namespace stagegpt {

Var dropout(Tape& tape, Var x, const Dropout& dropout) {
  if (!dropout.active()) return x;
  Backend& be = tape.backend();
  Tensor out = be.allocate(x.value().dtype(), x.value().shape());
  be.dropout_forward(out, x.value(), dropout);
  return tape.record("dropout", {x}, out,
                     [=, &be](const Tensor& dout, Grads g) { be.dropout_backward(g[0], dout, dropout); });
}

}  // namespace stagegpt
