#include "common/autograd/ops/layernorm.h"

namespace stagegpt {
namespace {

struct LayernormBuffers {
  LayernormBuffers(Backend& be, const Tensor& x)
      : out(be.allocate(x.dtype(), x.shape())),
        mean(be.allocate(statistics_dtype(x.dtype()), {x.numel() / x.shape()[-1]})),
        rstd(be.allocate(mean.dtype(), mean.shape())) {}

  Tensor out;         // (…,C)
  Tensor mean, rstd;  // (N)
};

}  // namespace

Var layernorm(Tape& tape, Var x, Var w, Var bias, double eps) {
  Backend& be = tape.backend();
  const LayernormBuffers y(be, x.value());
  be.layernorm_forward(y.out, y.mean, y.rstd, x.value(), w.value(), bias.value(), eps);
  return tape.record("layernorm", {x, w, bias}, y.out,
                     [=, &be, mean = y.mean, rstd = y.rstd](const Tensor& dout, Grads g) {
                       be.layernorm_backward(g[0], g[1], g[2], dout, x.value(), w.value(), mean, rstd);
                     });
}

std::pair<Var, Var> residual_layernorm(Tape& tape, Var x, Var residual, Var w, Var bias, double eps) {
  Backend& be = tape.backend();
  const LayernormBuffers y(be, x.value());
  Tensor sum = be.allocate(x.value().dtype(), x.value().shape());  // (…,C)
  be.residual_layernorm_forward(sum, y.out, y.mean, y.rstd, x.value(), residual.value(), w.value(),
                                bias.value(), eps);
  auto outs = tape.record(
      "residual_layernorm", {x, residual, w, bias}, {sum, y.out},
      [=, &be, mean = y.mean, rstd = y.rstd](std::vector<Tensor>& douts, Grads g) {
        // `sum` is used twice: it is normalised here, and it is the residual stream for later ops. Its
        // gradient is the sum of both uses' gradients, and it is the gradient of x and of `residual`.
        const Tensor dsum = g.writable(std::exchange(douts[0], Tensor()));
        be.layernorm_backward({dsum, GradMode::accumulate}, g[2], g[3], douts[1], sum, w.value(), mean, rstd);
        g.give(0, dsum);
        g.give(1, dsum);
      });
  return {outs[0], outs[1]};
}

}  // namespace stagegpt
