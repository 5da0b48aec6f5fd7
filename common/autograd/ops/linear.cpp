#include "common/autograd/ops/linear.h"

namespace stagegpt {
namespace {

// For x · wᵀ: the shape of x with the rows of w as its last extent.
Tensor allocate_output(Backend& be, const Tensor& x, const Tensor& w) {
  const Shape& s = x.shape();
  const std::int64_t columns = w.shape()[0];
  return be.allocate(x.dtype(), s.rank() == 3 ? Shape{s[0], s[1], columns} : Shape{s[0], columns});
}

Tape::Backward linear_backward(Backend& be, const Var& x, const Var& w) {
  return [=, &be](const Tensor& dout, Grads g) {
    be.linear_backward(g[0], g[1], g[2], dout, x.value(), w.value());
  };
}

// x.out again, to the bit. In f32 it is the activation of pre. In bf16 the fused kernel may have activated
// the sums before pre was rounded, so the kernel runs again; it writes to pre what is there already.
Tensor activation_again(Backend& be, const Activated& x) {
  const Tensor& pre = x.pre.value();
  Tensor out = be.allocate(pre.dtype(), pre.shape());  // (…,I)
  if (pre.dtype() == DType::bf16) {
    be.linear_activation_forward(out, pre, x.x.value(), x.w.value(), x.bias.value(), x.activation);
  } else {
    be.activation_forward(out, pre, x.activation);
  }
  return out;
}

}  // namespace

Var linear(Tape& tape, Var x, Var w, Var bias) {
  Backend& be = tape.backend();
  Tensor out = allocate_output(be, x.value(), w.value());  // (…,O)
  be.linear_forward(out, x.value(), w.value(), bias.value());
  return tape.record("linear", {x, w, bias}, out, linear_backward(be, x, w));
}

Activated linear_activation(Tape& tape, Var x, Var w, Var bias, Activation activation) {
  Backend& be = tape.backend();
  Tensor pre = allocate_output(be, x.value(), w.value());  // (…,O)
  Tensor out = be.allocate(pre.dtype(), pre.shape());      // (…,O)
  be.linear_activation_forward(out, pre, x.value(), w.value(), bias.value(), activation);
  return {tape.record("linear", {x, w, bias}, pre, linear_backward(be, x, w)), out, activation, x, w, bias};
}

Var activation_linear(Tape& tape, Activated x, Var w, Var bias, bool recompute) {
  Backend& be = tape.backend();
  Tensor out = allocate_output(be, x.out, w.value());  // (…,O)
  be.linear_forward(out, x.out, w.value(), bias.value());
  if (recompute) x.out = Tensor();
  return tape.record(
      "activation_linear", {x.pre, w, bias}, out, [=, &be](const Tensor& dout, Grads g) mutable {
        if (!x.out.defined()) x.out = activation_again(be, x);
        const Tensor dpre = g.reuse(x.out);  // (…,I)
        be.activation_linear_backward(dpre, g[1], g[2], dout, x.out, x.pre.value(), w.value(), x.activation);
        g.give(0, dpre);
      });
}

}  // namespace stagegpt
