#include "common/autograd/ops/layernorm.h"

#include <tuple>
#include <utility>

#include "common/backend/op_work.h"
#include "common/backend/ops/elementwise.h"

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
  be.run(LayernormForward{y.out, y.mean, y.rstd, x.value(), w.value(), bias.value(), eps});
  // The closure captures mean and rstd, not y: what it holds stays in memory, and the backward needs no out.
  return tape.record(kLayernorm, {x, w, bias}, y.out,
                     [=, &be, mean = y.mean, rstd = y.rstd](const Tensor& dout, Grads g) {
                       be.run(LayernormBackward{g[0], g[1], g[2], dout, x.value(), w.value(), mean, rstd});
                     });
}

std::pair<Var, Var> residual_layernorm(Tape& tape, Var x, Var residual, Var w, Var bias, double eps) {
  Backend& be = tape.backend();
  const LayernormBuffers y(be, x.value());
  Tensor sum = be.allocate(x.value().dtype(), x.value().shape());  // (…,C)
  be.run(ResidualLayernormForward{sum, y.out, y.mean, y.rstd, x.value(), residual.value(), w.value(),
                                  bias.value(), eps});
  auto outs =
      tape.record(kResidualLayernorm, {x, residual, w, bias}, {sum, y.out},
                  [=, &be, mean = y.mean, rstd = y.rstd](std::vector<Tensor>& douts, Grads g) {
                    // `sum` is used twice: it is normalised here, and it is the residual stream for later
                    // ops, whose gradient is douts[0]. That is moved out, so that this may be its only
                    // handle: then the kernel adds to it in place, else to a copy. x and `residual` share
                    // the result.
                    const Tensor dsum = g.writable(std::exchange(douts[0], Tensor()));
                    be.run(LayernormBackward{
                        {dsum, GradMode::accumulate}, g[2], g[3], douts[1], sum, w.value(), mean, rstd});
                    g.give(0, dsum);
                    g.give(1, dsum);
                  });
  return {outs[0], outs[1]};
}

Var add_and_normalise(Tape& tape, Var& x, Var& residual, const Var& w, const Var& bias, double eps) {
  if (!residual.value().defined()) return layernorm(tape, x, w, bias, eps);
  Var norm;
  std::tie(x, norm) = residual_layernorm(tape, x, std::exchange(residual, Var()), w, bias, eps);
  return norm;
}

namespace {

void check_layernorm(const Checks& checks, const Tensor& like, const Tensor& x, const Tensor& w,
                     const Tensor& mean, const Tensor& rstd) {
  checks.real(x, "x");
  const std::int64_t channels = x.shape()[-1], n = rows(x, channels);
  checks.shape(like, x.dtype(), x.shape(), "out");
  const DType statistics = statistics_dtype(x.dtype());
  checks.shape(w, statistics, {channels}, "weight");
  checks.elements(mean, statistics, n, "mean");
  checks.elements(rstd, statistics, n, "rstd");
}

}  // namespace

void LayernormForward::check(const Checks& checks) const {
  check_layernorm(checks, out, x, w, mean, rstd);
  checks.shape(bias, w.dtype(), w.shape(), "bias");
}

Work LayernormForward::work() const {
  // Sums of x and of (x - mean)²; then (x - mean) · rstd · w + bias.
  return {elements(x) * (1 + 3 + 4), moved(out, mean, rstd, x, w, bias)};
}

void LayernormBackward::check(const Checks& checks) const {
  check_layernorm(checks, dout, x, w, mean, rstd);
  checks.grad(dx, x.dtype(), x.shape(), "dx");
  checks.grad(dw, w.dtype(), w.shape(), "dw");
  checks.grad(dbias, w.dtype(), w.shape(), "dbias");
}

Work LayernormBackward::work() const {
  // x̂ = (x - mean) · rstd. dx = rstd · (d̂ - mean(d̂) - x̂ · mean(d̂·x̂)) with d̂ = dout · w; dw sums dout · x̂.
  constexpr double kNorm = 2, kDx = 1 + 1 + 2 + 4, kDw = 2, kDbias = 1;
  return {elements(x) * (kNorm + kDx * dx.wanted() + kDw * dw.wanted() + kDbias * dbias.wanted()),
          moved(dx, dw, dbias, dout, x, w, mean, rstd)};
}

void ResidualLayernormForward::check(const Checks& checks) const {
  check_layernorm(checks, out, x, w, mean, rstd);
  checks.shape(bias, w.dtype(), w.shape(), "bias");
  checks.shape(residual, x.dtype(), x.shape(), "residual");
  checks.shape(sum, x.dtype(), x.shape(), "sum");
}

Work ResidualLayernormForward::work() const {
  const Work norm = LayernormForward{out, mean, rstd, x, w, bias, eps}.work();
  return {elements(x) + norm.flops, moved(sum, residual) + norm.bytes};
}

void ResidualLayernormForward::composed(Backend& be) const {
  be.run(Add{sum, x, residual});
  be.run(LayernormForward{out, mean, rstd, sum, w, bias, eps});
}

}  // namespace stagegpt
