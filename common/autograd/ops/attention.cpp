#include "common/autograd/ops/attention.h"

#include "common/backend/op_work.h"

namespace stagegpt {

Var attention(Tape& tape, Var qkv, int n_head, double scale, const Dropout& dropout) {
  Backend& be = tape.backend();
  const Tensor& x = qkv.value();
  const std::int64_t B = x.shape()[0], T = x.shape()[1], C = x.shape()[2] / 3;
  Tensor out = be.allocate(x.dtype(), {B, T, C});                         // (B,T,C)
  Tensor lse = be.allocate(statistics_dtype(x.dtype()), {B, n_head, T});  // (B,NH,T)
  be.run(AttentionForward{out, lse, x, n_head, scale, dropout});
  return tape.record(kAttention, {qkv}, out, [=, &be](const Tensor& dout, Grads g) {
    be.run(AttentionBackward{g[0], dout, out, lse, qkv.value(), n_head, scale, dropout});
  });
}

Var cached_attention(Tape& tape, Var qkv, const Tensor& cache, int n_head, double scale, std::int64_t first,
                     const Tensor& position) {
  Backend& be = tape.backend();
  const Shape& s = qkv.value().shape();
  Tensor out = be.allocate(qkv.value().dtype(), {s[0], s[1], s[2] / 3});  // (B,T,C)
  be.run(CachedAttentionForward{out, cache, qkv.value(), n_head, scale, first, position});
  return tape.record("cached_attention", {qkv}, out,
                     [](const Tensor&, Grads) { check(false, "cached attention: has no backward"); });
}

namespace {

void check_heads(const Checks& checks, const Tensor& qkv, int n_head, double scale) {
  checks.real(qkv, "qkv");
  checks.that(qkv.shape().rank() == 3 && qkv.shape()[2] % 3 == 0, "qkv of shape (B,T,3C)");
  checks.that(n_head > 0 && qkv.shape()[2] / 3 % n_head == 0, "a number of heads that divides the channels");
  checks.that(scale > 0, "a positive scale");
}

void check_attention(const Checks& checks, const Tensor& out, const Tensor& lse, const Tensor& qkv,
                     int n_head, double scale) {
  check_heads(checks, qkv, n_head, scale);
  const std::int64_t B = qkv.shape()[0], T = qkv.shape()[1], C = qkv.shape()[2] / 3;
  checks.shape(out, qkv.dtype(), {B, T, C}, "out");
  checks.shape(lse, statistics_dtype(qkv.dtype()), {B, n_head, T}, "lse");
}

// Number of pairs of a query and a key, in all heads: a query attends to the keys up to its own position. lse
// (B,NH,T).
double causal_pairs(const Tensor& lse) { return elements(lse) * static_cast<double>(lse.shape()[2] + 1) / 2; }

// qkv (B,T,3C), lse (B,NH,T).
double head_size(const Tensor& qkv, const Tensor& lse) {
  return static_cast<double>(qkv.shape()[2] / 3 / lse.shape()[1]);
}

}  // namespace

void AttentionForward::check(const Checks& checks) const {
  check_attention(checks, out, lse, qkv, n_head, scale);
}

Work AttentionForward::work() const {
  // For each pair: q·k and p·v; scale, max, difference, exp and sum. Each output is then divided by its sum.
  return {causal_pairs(lse) * (4 * head_size(qkv, lse) + 5) + elements(out), moved(out, lse, qkv)};
}

void AttentionBackward::check(const Checks& checks) const {
  check_attention(checks, out, lse, qkv, n_head, scale);
  checks.shape(dout, qkv.dtype(), out.shape(), "dout");
  checks.grad(dqkv, qkv.dtype(), qkv.shape(), "dqkv");
}

Work AttentionBackward::work() const {
  // For each pair: q·k again, since p was not saved; dout·v; its share of dq, dk and dv; p = exp(scale·s -
  // lse), ds = scale · p · (dp - Σ), where Σ is dout·out of the query.
  return {causal_pairs(lse) * (10 * head_size(qkv, lse) + 6) + 2 * elements(out),
          moved(dqkv, dout, out, lse, qkv)};
}

void CachedAttentionForward::check(const Checks& checks) const {
  check_heads(checks, qkv, n_head, scale);
  const std::int64_t B = qkv.shape()[0], T = qkv.shape()[1], C = qkv.shape()[2] / 3;
  checks.dtype(cache, qkv.dtype(), "cache");
  checks.that(cache.shape().rank() == 3, "a cache of shape (B,P,2C)");
  const std::int64_t P = cache.shape()[1];
  checks.shape(cache, qkv.dtype(), {B, P, 2 * C}, "cache");
  checks.that(first >= 0 && first + T <= P, "room for the new tokens in the cache");
  if (position.defined()) checks.shape(position, DType::i32, {1}, "position");
  checks.shape(out, qkv.dtype(), {B, T, C}, "out");
}

Work CachedAttentionForward::work() const {
  // As in AttentionForward, but new token t attends to first + t + 1 keys. In the cache, the rows of earlier
  // tokens are read and those of the new tokens are written.
  const double B = static_cast<double>(qkv.shape()[0]), T = static_cast<double>(qkv.shape()[1]),
               before = static_cast<double>(first);
  const double pairs = B * n_head * (T * before + T * (T + 1) / 2);
  const double row = bytes(cache) / (B * static_cast<double>(cache.shape()[1]));
  return {pairs * (4 * elements(out) / (B * T * n_head) + 5) + elements(out),
          moved(out, qkv) + B * (before + T) * row};
}

}  // namespace stagegpt
