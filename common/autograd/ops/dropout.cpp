#include "common/autograd/ops/dropout.h"

#include "common/backend/op_work.h"

namespace stagegpt {

Var dropout(Tape& tape, Var x, const Dropout& dropout) {
  if (!dropout.active()) return x;
  Backend& be = tape.backend();
  Tensor out = be.allocate(x.value().dtype(), x.value().shape());
  be.run(DropoutForward{out, x.value(), dropout});
  return tape.record("dropout", {x}, out, [=, &be](const Tensor& dout, Grads g) {
    be.run(DropoutBackward{g[0], dout, dropout});
  });
}

void DropoutForward::check(const Checks& checks) const {
  checks.real(x, "x");
  checks.shape(out, x.dtype(), x.shape(), "out");
}

Work DropoutForward::work() const { return {elements(out), moved(out, x)}; }

void DropoutBackward::check(const Checks& checks) const {
  checks.real(dout, "dout");
  checks.grad(dx, dout.dtype(), dout.shape(), "dx");
}

Work DropoutBackward::work() const { return {elements(dout), moved(dx, dout)}; }

}  // namespace stagegpt
