#include "common/autograd/ops/norm_linear.h"

#include "common/autograd/ops/layernorm.h"
#include "common/backend/op_work.h"
#include "common/backend/ops/activation.h"

namespace stagegpt {

Normed normed(Tape& tape, Var& x, Var& residual, const Var& w, const Var& bias, double eps,
              bool may_be_left) {
  Backend& be = tape.backend();
  const Tensor in = x.value();
  if (!may_be_left || !be.norms_in_product(in)) return {add_and_normalise(tape, x, residual, w, bias, eps)};
  Normed later{{}, {}, in, residual.value(), w.value(), bias.value(), eps};
  if (!later.residual.defined()) return later;
  later.sum = be.allocate(in.dtype(), in.shape());
  x = Var(later.sum);
  residual = Var();
  return later;
}

namespace {

Var in_one_op(Tape& tape, const Normed& x, const Var& w, const Var& bias, Activation activation) {
  Backend& be = tape.backend();
  const Shape& s = x.x.shape();
  const Tensor out = be.allocate(x.x.dtype(), {s[0], s[1], w.value().shape()[0]});
  be.run(NormLinearForward{out, x.sum, x.x, x.residual, x.weight, x.bias, x.eps, w.value(), bias.value(),
                           activation});
  return tape.record("norm_linear", {w, bias}, out,
                     [](const Tensor&, Grads) { check(false, "norm_linear: has no backward"); });
}

}  // namespace

Var linear(Tape& tape, const Normed& x, const Var& w, const Var& bias) {
  if (x.norm.value().defined()) return linear(tape, x.norm, w, bias);
  return in_one_op(tape, x, w, bias, Activation::none);
}

Activated linear_activation(Tape& tape, const Normed& x, const Var& w, const Var& bias,
                            Activation activation) {
  if (x.norm.value().defined()) return linear_activation(tape, x.norm, w, bias, activation);
  return {{}, in_one_op(tape, x, w, bias, activation).value(), activation, {}, w, bias};
}

void NormLinearForward::check(const Checks& checks) const {
  checks.real(x, "x");
  const Shape columns{x.shape()[-1]};
  if (residual.defined()) {
    checks.shape(residual, x.dtype(), x.shape(), "residual");
    checks.shape(sum, x.dtype(), x.shape(), "sum");
  }
  checks.shape(norm_w, statistics_dtype(x.dtype()), columns, "layernorm's weight");
  checks.shape(norm_bias, statistics_dtype(x.dtype()), columns, "layernorm's bias");
  LinearForward{out, x, w, bias}.check(checks);
}

Work NormLinearForward::work() const {
  // Mean, variance, and the normalised row, as in LayernormForward; nothing between layernorm and product is
  // written.
  const Work linear = LinearForward{out, x, w, bias}.work();
  const double norm = elements(x) * (8 + (residual.defined() ? 1 : 0));
  return {linear.flops + norm + elements(out) * forward_flops(activation),
          linear.bytes + moved(sum, residual, norm_w, norm_bias)};
}

void NormLinearForward::composed(Backend& be) const {
  const std::int64_t N = x.numel() / x.shape()[-1];
  const DType statistics = statistics_dtype(x.dtype());
  const Tensor norm = be.allocate(x.dtype(), x.shape()), mean = be.allocate(statistics, {N}),
               rstd = be.allocate(statistics, {N});
  residual.defined()
      ? be.run(ResidualLayernormForward{sum, norm, mean, rstd, x, residual, norm_w, norm_bias, eps})
      : be.run(LayernormForward{norm, mean, rstd, x, norm_w, norm_bias, eps});
  if (activation == Activation::none) return be.run(LinearForward{out, norm, w, bias});
  be.run(LinearActivationForward{out, be.allocate(out.dtype(), out.shape()), norm, w, bias, activation});
}

}  // namespace stagegpt
