#include "common/autograd/ops/attention.h"

namespace stagegpt {

Var attention(Tape& tape, Var qkv, int n_head, const Dropout& dropout) {
  Backend& be = tape.backend();
  const Tensor& x = qkv.value();
  const std::int64_t B = x.shape()[0], T = x.shape()[1], C = x.shape()[2] / 3;
  Tensor out = be.allocate(x.dtype(), {B, T, C});       // (B,T,C)
  Tensor lse = be.allocate(x.dtype(), {B, n_head, T});  // (B,NH,T)
  be.attention_forward(out, lse, x, n_head, dropout);
  return tape.record("attention", {qkv}, out, [=, &be](const Tensor& dout, Grads g) {
    be.attention_backward(g[0], dout, out, lse, qkv.value(), n_head, dropout);
  });
}

}  // namespace stagegpt
