#include "common/autograd/ops/add.h"

namespace stagegpt {

Var add(Tape& tape, Var x, Var y) {
  Backend& be = tape.backend();
  const Tensor out = be.allocate(x.value().dtype(), x.value().shape());
  be.add(out, x.value(), y.value());
  return tape.record("add", {x, y}, out, [](const Tensor& dout, Grads g) {
    g.give(0, dout);
    g.give(1, dout);
  });
}

}  // namespace stagegpt
