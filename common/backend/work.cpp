#include "common/backend/work.h"

#include "common/tensor/quantised_rows.h"

namespace stagegpt::work {
namespace {

double count(const Tensor& tensor) { return static_cast<double>(tensor.numel()); }
double size(const Tensor& tensor) { return tensor.defined() ? static_cast<double>(tensor.bytes()) : 0; }
double size(const Grad& grad) {
  if (!grad.wanted()) return 0;
  return grad.accumulates() ? 2 * size(grad.tensor) : size(grad.tensor);
}

// Bytes of all operands.
template <class... Operands>
double moved(const Operands&... operands) {
  return (size(operands) + ...);
}

// Bytes of the gradient of a table (P,C), where rows with n elements in total receive a gradient. `overwrite`
// writes the whole table, the other rows with zeros. `accumulate` reads and writes only the rows that receive
// one.
double moved_rows(const Grad& table, double n) {
  if (!table.wanted()) return 0;
  return table.accumulates() ? 2 * n * static_cast<double>(size_of(table.tensor.dtype()))
                             : size(table.tensor);
}

// out (N,O), w (O,I).
double product_flops(const Tensor& out, const Tensor& w) {
  return 2 * count(out) * static_cast<double>(columns_of(w));
}

// For each element.
double forward_flops(Activation activation) {
  switch (activation) {
    case Activation::none:
      return 0;
    case Activation::relu:
      return 1;
    case Activation::gelu:  // ½x · (1 + erf(x/√2))
      return 5;
    case Activation::gelu_new:  // ½x · (1 + tanh(x · (a + b·x·x)))
      return 8;
  }
  return 0;
}

// For each element: the derivative, and its product with dout.
double backward_flops(Activation activation) {
  switch (activation) {
    case Activation::none:
      return 0;
    case Activation::relu:
      return 1;
    case Activation::gelu:  // ½ + ½·erf(a·x) + x · b·exp(-½·x·x)
      return 4 + 6 + 1;
    case Activation::gelu_new:  // ½ + ½·t + ½x · (1 - t·t) · (a + c·x·x), t = tanh(x · (a + b·x·x))
      return 5 + 2 + 8 + 1;
  }
  return 0;
}

// Number of pairs of a query and a key, in all heads: a query attends to the keys up to its own position. lse
// (B,NH,T).
double causal_pairs(const Tensor& lse) { return count(lse) * static_cast<double>(lse.shape()[2] + 1) / 2; }

// qkv (B,T,3C), lse (B,NH,T).
double head_size(const Tensor& qkv, const Tensor& lse) {
  return static_cast<double>(qkv.shape()[2] / 3 / lse.shape()[1]);
}

// Number of elements in the first vocab_size columns of logits (N,Vp).
double real_logits(const Tensor& logits, std::int64_t vocab_size) {
  return count(logits) / static_cast<double>(logits.shape()[-1]) * static_cast<double>(vocab_size);
}

}  // namespace

Work fill(const Tensor& out) { return {0, moved(out)}; }
Work copy(const Tensor& out, const Tensor& in) { return {0, moved(out, in)}; }
Work transfer(const Tensor& tensor) { return {0, 2 * moved(tensor)}; }
Work add(const Tensor& out, const Tensor& a, const Tensor& b) { return {count(out), moved(out, a, b)}; }

Work cast(const Tensor& out, const Tensor& in) { return {count(out), moved(out, in)}; }

Work embedding_forward(const Tensor& out, const Tensor& ids, const Tensor& wte, const Tensor& wpe) {
  // One row of wte for each token, and T rows of wpe: as many elements as one sequence of out has.
  const double tokens = count(ids), rows = tokens * size(wte) / static_cast<double>(wte.shape()[0]),
               positions = wpe.defined() ? size(out) / static_cast<double>(ids.shape()[0]) : 0;
  return {wpe.defined() ? count(out) : 0, moved(out, ids) + rows + positions};
}

Work embedding_backward(const Grad& dwte, const Grad& dwpe, const Tensor& dout, const Tensor& ids) {
  const double n = count(dout), one_sequence = n / static_cast<double>(ids.shape()[0]);
  return {n * (dwte.wanted() + dwpe.wanted()),
          moved(dout, ids) + moved_rows(dwte, n) + moved_rows(dwpe, one_sequence)};
}

Work linear_forward(const Tensor& out, const Tensor& x, const Tensor& w, const Tensor& bias) {
  return {product_flops(out, w) + (bias.defined() ? count(out) : 0), moved(out, x, w, bias)};
}

Work linear_backward(const Grad& dx, const Grad& dw, const Grad& dbias, const Tensor& dout, const Tensor& x,
                     const Tensor& w) {
  const double product = product_flops(dout, w);
  return {product * (dx.wanted() + dw.wanted()) + count(dout) * dbias.wanted(),
          moved(dout, dx, dw, dbias) + size(w) * dx.wanted() + size(x) * dw.wanted()};
}

Work linear_activation_forward(const Tensor& out, const Tensor& pre, const Tensor& x, const Tensor& w,
                               const Tensor& bias, Activation activation) {
  const Work linear = linear_forward(pre, x, w, bias);
  return {linear.flops + count(out) * forward_flops(activation), linear.bytes + moved(out)};
}

Work activation_linear_backward(const Tensor& dpre, const Grad& dw, const Grad& dbias, const Tensor& dout,
                                const Tensor& x, const Tensor& pre, const Tensor& w, Activation activation) {
  const Work linear = linear_backward({dpre, GradMode::overwrite}, dw, dbias, dout, x, w);
  return {linear.flops + count(pre) * backward_flops(activation), linear.bytes + moved(pre)};
}

Work activation_forward(const Tensor& out, const Tensor& x, Activation activation) {
  return {count(out) * forward_flops(activation), moved(out, x)};
}

Work activation_backward(const Grad& dx, const Tensor& dout, const Tensor& x, Activation activation) {
  return {count(x) * backward_flops(activation), moved(dx, dout, x)};
}

Work layernorm_forward(const Tensor& out, const Tensor& mean, const Tensor& rstd, const Tensor& x,
                       const Tensor& w, const Tensor& bias) {
  // Sums of x and of (x - mean)²; then (x - mean) · rstd · w + bias.
  return {count(x) * (1 + 3 + 4), moved(out, mean, rstd, x, w, bias)};
}

Work residual_layernorm_forward(const Tensor& sum, const Tensor& out, const Tensor& mean, const Tensor& rstd,
                                const Tensor& x, const Tensor& residual, const Tensor& w,
                                const Tensor& bias) {
  const Work norm = layernorm_forward(out, mean, rstd, x, w, bias);
  return {count(x) + norm.flops, moved(sum, residual) + norm.bytes};
}

Work layernorm_backward(const Grad& dx, const Grad& dw, const Grad& dbias, const Tensor& dout,
                        const Tensor& x, const Tensor& w, const Tensor& mean, const Tensor& rstd) {
  // n = (x - mean) · rstd. dx = rstd · (d - mean(d) - n · mean(d·n)) with d = dout · w; dw sums dout · n.
  constexpr double kNorm = 2, kDx = 1 + 1 + 2 + 4, kDw = 2, kDbias = 1;
  return {count(x) * (kNorm + kDx * dx.wanted() + kDw * dw.wanted() + kDbias * dbias.wanted()),
          moved(dx, dw, dbias, dout, x, w, mean, rstd)};
}

Work attention_forward(const Tensor& out, const Tensor& lse, const Tensor& qkv) {
  // For each pair: q·k and p·v; scale, max, difference, exp and sum. Each output is then divided by its sum.
  return {causal_pairs(lse) * (4 * head_size(qkv, lse) + 5) + count(out), moved(out, lse, qkv)};
}

Work attention_backward(const Grad& dqkv, const Tensor& dout, const Tensor& out, const Tensor& lse,
                        const Tensor& qkv) {
  // For each pair: q·k again, since p was not saved; dout·v; its share of dq, dk and dv; p = exp(scale·s -
  // lse), ds = scale · p · (dp - Σ), where Σ is dout·out of the query.
  return {causal_pairs(lse) * (10 * head_size(qkv, lse) + 6) + 2 * count(out),
          moved(dqkv, dout, out, lse, qkv)};
}

Work cached_attention_forward(const Tensor& out, const Tensor& cache, const Tensor& qkv, int n_head,
                              std::int64_t first) {
  // As in attention_forward, but new token t attends to first + t + 1 keys. In the cache, the rows of earlier
  // tokens are read and those of the new tokens are written.
  const double B = static_cast<double>(qkv.shape()[0]), T = static_cast<double>(qkv.shape()[1]),
               before = static_cast<double>(first);
  const double pairs = B * n_head * (T * before + T * (T + 1) / 2);
  const double row = size(cache) / (B * static_cast<double>(cache.shape()[1]));
  return {pairs * (4 * count(out) / (B * T * n_head) + 5) + count(out),
          moved(out, qkv) + B * (before + T) * row};
}

Work dropout_forward(const Tensor& out, const Tensor& x) { return {count(out), moved(out, x)}; }
Work dropout_backward(const Grad& dx, const Tensor& dout) { return {count(dout), moved(dx, dout)}; }

Work cross_entropy_forward(const Tensor& loss, const Tensor& lse, const Tensor& logits, const Tensor& targets,
                           std::int64_t vocab_size) {
  // Max, difference, exp and sum.
  const double n = real_logits(logits, vocab_size);
  return {4 * n, moved(loss, lse, targets) + n * static_cast<double>(size_of(logits.dtype()))};
}

Work cross_entropy_backward(const Tensor& dlogits, const Tensor& dloss, const Tensor& logits,
                            const Tensor& lse, const Tensor& targets, std::int64_t vocab_size) {
  // Difference, exp and scale.
  const double n = real_logits(logits, vocab_size);
  return {3 * n, moved(dlogits, dloss, lse, targets) + n * static_cast<double>(size_of(logits.dtype()))};
}

Work cross_entropy_forward_backward(const Tensor& loss, const Tensor& dlogits, const Tensor& dloss,
                                    const Tensor& logits, const Tensor& targets, std::int64_t vocab_size) {
  // The operations of both; the logits are read once.
  const double n = real_logits(logits, vocab_size);
  return {7 * n, moved(loss, dlogits, dloss, targets) + n * static_cast<double>(size_of(logits.dtype()))};
}

Work cross_entropy_part_forward(const Tensor& lse, const Tensor& picked, const Tensor& logits,
                                const Tensor& targets, std::int64_t vocab_size) {
  const double n = real_logits(logits, vocab_size);
  return {4 * n, moved(lse, picked, targets) + n * static_cast<double>(size_of(logits.dtype()))};
}

Work cross_entropy_of_parts(const Tensor& loss, const Tensor& lse, const Tensor& parts) {
  // Of lse: max, difference, exp and sum; of picked: a sum.
  return {2.5 * count(parts), moved(loss, lse, parts)};
}

Work count_correct(const Tensor& count, const Tensor& logits, const Tensor& targets,
                   std::int64_t vocab_size) {
  const double compared = real_logits(logits, vocab_size);
  return {compared, compared * static_cast<double>(size_of(logits.dtype())) + moved(targets, count)};
}

Work squared_norm(const Tensor& out, const Tensor& x) { return {2 * count(x), moved(out, x)}; }

Work sum(const Tensor& out, const Tensor& x) { return {count(x), moved(out, x)}; }

Work adamw(const Tensor& weights, const Tensor& shadow, std::span<const DecayRange> ranges) {
  double n = 0;
  for (const DecayRange& range : ranges) n += static_cast<double>(range.end - range.begin);
  // Scaling by the clip factor, m, v, and w = keep·w - a·m / (√v·b + eps). Reads w, m, v and the gradient,
  // writes w, m, v and, if there is one, the shadow.
  const std::size_t bytes = 7 * size_of(weights.dtype()) + (shadow.defined() ? size_of(shadow.dtype()) : 0);
  return {n * (1 + 3 + 4 + 7), n * static_cast<double>(bytes)};
}

}  // namespace stagegpt::work
