#include "common/autograd/ops/add.h"

#include "common/backend/ops/elementwise.h"

namespace stagegpt {

Var add(Tape& tape, Var x, Var y) {
  Backend& be = tape.backend();
  const Tensor out = be.allocate(x.value().dtype(), x.value().shape());
  be.run(Add{out, x.value(), y.value()});
  return tape.record(kAdd, {x, y}, out, [](const Tensor& dout, Grads g) {
    g.give(0, dout);
    g.give(1, dout);
  });
}

}  // namespace stagegpt
