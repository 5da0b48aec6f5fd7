#include "common/autograd/ops/linear.h"

namespace stagegpt {
namespace {

// The shape of x with its last extent replaced.
Shape with_columns(const Shape& x, std::int64_t columns) {
  return x.rank() == 3 ? Shape{x[0], x[1], columns} : Shape{x[0], columns};
}

}  // namespace

Var linear(Tape& tape, Var x, Var w, Var bias, Activation activation) {
  Backend& be = tape.backend();
  Tensor out =
      be.allocate(x.value().dtype(), with_columns(x.value().shape(), w.value().shape()[0]));  // (…,O)
  if (activation == Activation::none) {
    be.linear_forward(out, x.value(), w.value(), bias.value());
    return tape.record("linear", {x, w, bias}, out, [=, &be](const Tensor& dout, Grads g) {
      be.linear_backward(g[0], g[1], g[2], dout, x.value(), w.value());
    });
  }
  Tensor pre = be.allocate(out.dtype(), out.shape());  // (…,O)
  be.linear_activation_forward(out, pre, x.value(), w.value(), bias.value(), activation);
  return tape.record("linear_activation", {x, w, bias}, out, [=, &be](const Tensor& dout, Grads g) {
    Tensor dpre = g.reuse(pre);  // (…,O)
    be.activation_backward({dpre, GradMode::overwrite}, dout, pre, activation);
    be.linear_backward(g[0], g[1], g[2], dpre, x.value(), w.value());
  });
}

}  // namespace stagegpt
