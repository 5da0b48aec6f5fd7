#include "common/autograd/ops/linear.h"

#include "common/backend/op_work.h"
#include "common/backend/ops/activation.h"
#include "common/tensor/quantised_rows.h"

namespace stagegpt {
namespace {

// For x · wᵀ: the shape of x with the rows of w as its last extent.
Tensor allocate_output(Backend& be, const Tensor& x, const Tensor& w) {
  const Shape& s = x.shape();
  const std::int64_t columns = w.shape()[0];
  return be.allocate(x.dtype(), s.rank() == 3 ? Shape{s[0], s[1], columns} : Shape{s[0], columns});
}

Tape::Backward backward_of_linear(Backend& be, const Var& x, const Var& w) {
  return [=, &be](const Tensor& dout, Grads g) {
    be.run(LinearBackward{g[0], g[1], g[2], dout, x.value(), w.value()});
  };
}

// x.out again, to the bit. In f32 it is the activation of pre. In bf16 the fused kernel may have activated
// the sums before pre was rounded, so the kernel runs again; it writes to pre what is there already.
Tensor activation_again(Backend& be, const Activated& x) {
  const Tensor& pre = x.pre.value();
  Tensor out = be.allocate(pre.dtype(), pre.shape());  // (…,I)
  if (pre.dtype() == DType::bf16) {
    be.run(LinearActivationForward{out, pre, x.x.value(), x.w.value(), x.bias.value(), x.activation});
  } else {
    be.run(ActivationForward{out, pre, x.activation});
  }
  return out;
}

}  // namespace

Var linear(Tape& tape, Var x, Var w, Var bias) {
  Backend& be = tape.backend();
  Tensor out = allocate_output(be, x.value(), w.value());  // (…,O)
  be.run(LinearForward{out, x.value(), w.value(), bias.value()});
  return tape.record(kLinear, {x, w, bias}, out, backward_of_linear(be, x, w));
}

Activated linear_activation(Tape& tape, Var x, Var w, Var bias, Activation activation) {
  Backend& be = tape.backend();
  Tensor pre = allocate_output(be, x.value(), w.value());  // (…,O)
  Tensor out = be.allocate(pre.dtype(), pre.shape());      // (…,O)
  be.run(LinearActivationForward{out, pre, x.value(), w.value(), bias.value(), activation});
  return {tape.record(kLinear, {x, w, bias}, pre, backward_of_linear(be, x, w)), out, activation, x, w, bias};
}

Var activation_linear(Tape& tape, Activated x, Var w, Var bias, bool recompute) {
  Backend& be = tape.backend();
  Tensor out = allocate_output(be, x.out, w.value());  // (…,O)
  be.run(LinearForward{out, x.out, w.value(), bias.value()});
  if (recompute) x.out = Tensor();
  return tape.record(kActivationLinear, {x.pre, w, bias}, out, [=, &be](const Tensor& dout, Grads g) mutable {
    if (!x.out.defined()) x.out = activation_again(be, x);
    const Tensor dpre = g.reuse(x.out);  // (…,I)
    be.run(ActivationLinearBackward{dpre, g[1], g[2], dout, x.out, x.pre.value(), w.value(), x.activation});
    g.give(0, dpre);
  });
}

namespace {

// out (N,O), w (O,I).
double product_flops(const Tensor& out, const Tensor& w) {
  return 2 * elements(out) * static_cast<double>(columns_of(w));
}

void check_linear(const Checks& checks, const Tensor& out, const Tensor& x, const Tensor& w) {
  checks.real(x, "x");
  checks.weight(w, x.dtype(), "weight");
  checks.that(w.shape().rank() == 2, "a weight of shape (O,I)");
  checks.that(x.shape()[-1] == columns_of(w), "x with as many columns as the weight");
  checks.elements(out, x.dtype(), rows(x, columns_of(w)) * w.shape()[0], "out");
  checks.that(out.shape()[-1] == w.shape()[0], "out with as many columns as the weight has rows");
}

void check_optional_bias(const Checks& checks, const Tensor& bias, const Tensor& x, const Tensor& w) {
  if (bias.defined()) checks.shape(bias, x.dtype(), {w.shape()[0]}, "bias");
}

}  // namespace

void LinearForward::check(const Checks& checks) const {
  check_linear(checks, out, x, w);
  check_optional_bias(checks, bias, x, w);
}

Work LinearForward::work() const {
  return {product_flops(out, w) + (bias.defined() ? elements(out) : 0), moved(out, x, w, bias)};
}

void LinearBackward::check(const Checks& checks) const {
  check_linear(checks, dout, x, w);
  checks.grad(dx, x.dtype(), x.shape(), "dx");
  checks.grad(dw, statistics_dtype(x.dtype()), w.shape(), "dw");
  checks.grad(dbias, statistics_dtype(x.dtype()), {w.shape()[0]}, "dbias");
}

Work LinearBackward::work() const {
  const double product = product_flops(dout, w);
  return {product * (dx.wanted() + dw.wanted()) + elements(dout) * dbias.wanted(),
          moved(dout, dx, dw, dbias) + bytes(w) * dx.wanted() + bytes(x) * dw.wanted()};
}

void LinearActivationForward::check(const Checks& checks) const {
  check_linear(checks, out, x, w);
  check_optional_bias(checks, bias, x, w);
  checks.shape(pre, x.dtype(), out.shape(), "pre-activation");
}

Work LinearActivationForward::work() const {
  const Work linear = LinearForward{pre, x, w, bias}.work();
  return {linear.flops + elements(out) * forward_flops(activation), linear.bytes + moved(out)};
}

void LinearActivationForward::composed(Backend& be) const {
  be.run(LinearForward{pre, x, w, bias});
  be.run(ActivationForward{out, pre, activation});
}

void ActivationLinearBackward::check(const Checks& checks) const {
  check_linear(checks, dout, x, w);
  checks.shape(pre, x.dtype(), x.shape(), "pre-activation");
  checks.shape(dpre, x.dtype(), x.shape(), "dpre");
  checks.grad(dw, statistics_dtype(x.dtype()), w.shape(), "dw");
  checks.grad(dbias, statistics_dtype(x.dtype()), {w.shape()[0]}, "dbias");
}

Work ActivationLinearBackward::work() const {
  const Work linear = LinearBackward{{dpre, GradMode::overwrite}, dw, dbias, dout, x, w}.work();
  return {linear.flops + elements(pre) * backward_flops(activation), linear.bytes + moved(pre)};
}

void ActivationLinearBackward::composed(Backend& be) const {
  const Grad out{dpre, GradMode::overwrite};
  be.run(LinearBackward{{}, dw, dbias, dout, x, w});  // first, because dpre may be x
  be.run(LinearBackward{out, {}, {}, dout, x, w});
  be.run(ActivationBackward{out, dpre, pre, activation});
}

}  // namespace stagegpt
