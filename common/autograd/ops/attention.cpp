#include "common/autograd/ops/attention.h"

namespace stagegpt {

Var attention(Tape& tape, Var qkv, int n_head, double scale, const Dropout& dropout) {
  Backend& be = tape.backend();
  const Tensor& x = qkv.value();
  const std::int64_t B = x.shape()[0], T = x.shape()[1], C = x.shape()[2] / 3;
  Tensor out = be.allocate(x.dtype(), {B, T, C});                         // (B,T,C)
  Tensor lse = be.allocate(statistics_dtype(x.dtype()), {B, n_head, T});  // (B,NH,T)
  be.attention_forward(out, lse, x, n_head, scale, dropout);
  return tape.record("attention", {qkv}, out, [=, &be](const Tensor& dout, Grads g) {
    be.attention_backward(g[0], dout, out, lse, qkv.value(), n_head, scale, dropout);
  });
}

Var cached_attention(Tape& tape, Var qkv, const Tensor& cache, int n_head, double scale, std::int64_t first) {
  Backend& be = tape.backend();
  const Shape& s = qkv.value().shape();
  Tensor out = be.allocate(qkv.value().dtype(), {s[0], s[1], s[2] / 3});  // (B,T,C)
  be.cached_attention_forward(out, cache, qkv.value(), n_head, scale, first);
  return tape.record("cached_attention", {qkv}, out,
                     [](const Tensor&, Grads) { check(false, "cached attention: has no backward"); });
}

}  // namespace stagegpt
