#include "stage0_serial/kernels/attention_blocked.h"

#include <vector>

#include "stage0_serial/kernels/matmul_tiled.h"
#include "stage0_serial/kernels/simd.h"
#include "stage0_serial/kernels/vector_math.h"

namespace stagegpt::vectorised {
namespace {

constexpr std::int64_t kQueries = 48;  // per block; a multiple of the rows of a register tile (12 or 6)

// Scratch memory of a thread, kept between calls.
class Scratch {
 public:
  // `n` floats in slot `slot`, contents undefined.
  float* floats(int slot, std::int64_t n) {
    std::vector<float>& buffer = slots_[slot];
    if (static_cast<std::int64_t>(buffer.size()) < n) buffer.resize(static_cast<std::size_t>(n));
    return buffer.data();
  }
  static Scratch& of_thread() {
    thread_local Scratch scratch;
    return scratch;
  }

 private:
  std::array<std::vector<float>, 4> slots_;
};

// out (HS, columns) = rowsᵀ, for T rows of HS elements that are `stride` apart; columns beyond T are zero.
void transpose_padded(float* out, std::int64_t columns, const float* rows, std::int64_t stride,
                      std::int64_t T, std::int64_t HS) {
  for (std::int64_t i = 0; i < HS; ++i) {
    for (std::int64_t t = 0; t < T; ++t) out[i * columns + t] = rows[t * stride + i];
    std::fill(out + i * columns + T, out + (i + 1) * columns, 0.0f);
  }
}

// Floats from one row of T columns to the next: whole vectors, and an odd number of them. With a power of
// two, the rows of a tile would begin in the same set of the cache and evict each other.
std::int64_t row_length(std::int64_t T) { return (round_up_to_lanes(T) / kLanes | 1) * kLanes; }

// One head's sizes and inputs, for forward and backward.
struct Head {
  Head(const float* qkv, AttentionSize size, std::int64_t head)
      : s(size),
        index(head),
        padded_T(row_length(size.T)),
        scale(static_cast<float>(size.scale)),
        q(qkv + size.qkv_offset(head)),
        k(q + size.channels()),
        v(k + size.channels()) {}

  // scores (queries t0…t1-1, keys 0…t1-1) = rows · transposed, over HS elements; rows of scores and of
  // `transposed` are padded_T elements apart.
  void block_product(float* scores, const float* rows, std::int64_t row_stride, const float* transposed,
                     std::int64_t t0, std::int64_t t1) const {
    tile_product(scores, padded_T, row_major(rows + t0 * row_stride, row_stride), transposed, padded_T,
                 {t1 - t0, round_up_to_lanes(t1), s.HS}, false);
  }
  // Index in the dropout sequence of the first element of query t.
  std::int64_t dropout_row(std::int64_t t) const { return (index * s.T + t) * s.T; }

  AttentionSize s;
  std::int64_t index, padded_T;
  float scale;
  const float *q, *k, *v;
};

// Replaces the scores of query t by probabilities: exp(scale·p - lse) for keys up to t, zero for later keys.
// Returns lse.
float softmax_row(float* p, std::int64_t t, std::int64_t end, float scale) {
  float max = p[0], sum = 0;
#pragma omp simd reduction(max : max)
  for (std::int64_t u = 0; u <= t; ++u) max = std::max(max, p[u]);
#pragma omp simd reduction(+ : sum)
  for (std::int64_t u = 0; u <= t; ++u) {
    p[u] = vector_exp(scale * (p[u] - max));
    sum += p[u];
  }
  const float inverse = 1 / sum;
#pragma omp simd
  for (std::int64_t u = 0; u <= t; ++u) p[u] *= inverse;
  std::fill(p + t + 1, p + end, 0.0f);
  return scale * max + std::log(sum);
}

void drop_row(float* p, const Dropout& dropout, std::int64_t first, std::int64_t n, float* factors) {
  dropout_factors(factors, dropout, first, first + n);
  for (std::int64_t u = 0; u < n; ++u) p[u] *= factors[u];
}

void forward_head(float* y, float* lse, const Head& head, const Dropout& dropout) {
  const AttentionSize& s = head.s;
  Scratch& scratch = Scratch::of_thread();
  float* k_t = scratch.floats(0, s.HS * head.padded_T);    // (HS,T)
  float* p = scratch.floats(1, kQueries * head.padded_T);  // (queries,T)
  float* factors = scratch.floats(2, head.padded_T);       // (T)
  transpose_padded(k_t, head.padded_T, head.k, s.row(), s.T, s.HS);
  for (std::int64_t t0 = 0; t0 < s.T; t0 += kQueries) {
    const std::int64_t t1 = std::min(s.T, t0 + kQueries);
    head.block_product(p, head.q, s.row(), k_t, t0, t1);
    for (std::int64_t t = t0; t < t1; ++t) {
      float* row = p + (t - t0) * head.padded_T;
      lse[t] = softmax_row(row, t, t1, head.scale);
      if (dropout.active()) drop_row(row, dropout, head.dropout_row(t), t + 1, factors);
    }
    tile_product(y + t0 * s.channels(), s.channels(), row_major(p, head.padded_T), head.v, s.row(),
                 {t1 - t0, s.HS, t1}, false);
  }
}

// For query t: replaces the scores in `p` by probabilities times dropout factors, and dp in `ds` by ds.
void backward_row(float* p, float* ds, std::int64_t t, std::int64_t end, float scale, float lse, float D,
                  const float* factors) {
  if (factors) {
    for (std::int64_t u = 0; u <= t; ++u) {
      const float probability = vector_exp(scale * p[u] - lse);
      ds[u] = scale * probability * (factors[u] * ds[u] - D);
      p[u] = factors[u] * probability;
    }
  } else {
#pragma omp simd
    for (std::int64_t u = 0; u <= t; ++u) {
      p[u] = vector_exp(scale * p[u] - lse);
      ds[u] = scale * p[u] * (ds[u] - D);
    }
  }
  std::fill(p + t + 1, p + end, 0.0f);
  std::fill(ds + t + 1, ds + end, 0.0f);
}

float dot(const float* a, const float* b, std::int64_t n) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

// Adds the gradients of one head's queries, keys and values at dq, dq + C and dq + 2C.
void backward_head(float* dq, const float* dy, const float* y, const float* lse, const Head& head,
                   const Dropout& dropout) {
  const AttentionSize& s = head.s;
  const std::int64_t C = s.channels(), ld = head.padded_T;
  float *dk = dq + C, *dv = dk + C;
  Scratch& scratch = Scratch::of_thread();
  float* k_t = scratch.floats(0, 2 * s.HS * ld);  // (HS,T)
  float* v_t = k_t + s.HS * ld;                   // (HS,T)
  float* p = scratch.floats(1, kQueries * ld);    // (queries,T)
  float* factors = scratch.floats(2, ld);         // (T)
  float* ds = scratch.floats(3, kQueries * ld);   // (queries,T)
  transpose_padded(k_t, ld, head.k, s.row(), s.T, s.HS);
  transpose_padded(v_t, ld, head.v, s.row(), s.T, s.HS);
  for (std::int64_t t0 = 0; t0 < s.T; t0 += kQueries) {
    const std::int64_t t1 = std::min(s.T, t0 + kQueries), queries = t1 - t0;
    head.block_product(p, head.q, s.row(), k_t, t0, t1);
    head.block_product(ds, dy, C, v_t, t0, t1);
    for (std::int64_t t = t0; t < t1; ++t) {
      if (dropout.active()) {
        dropout_factors(factors, dropout, head.dropout_row(t), head.dropout_row(t) + t + 1);
      }
      backward_row(p + (t - t0) * ld, ds + (t - t0) * ld, t, t1, head.scale, lse[t],
                   dot(dy + t * C, y + t * C, s.HS), dropout.active() ? factors : nullptr);
    }
    tile_product(dv, s.row(), row_major(p, ld).transposed(), dy + t0 * C, C, {t1, s.HS, queries}, true);
    tile_product(dk, s.row(), row_major(ds, ld).transposed(), head.q + t0 * s.row(), s.row(),
                 {t1, s.HS, queries}, true);
    tile_product(dq + t0 * s.row(), s.row(), row_major(ds, ld), head.k, s.row(), {queries, s.HS, t1}, true);
  }
}

}  // namespace

void attention_forward(const Parallel& parallel, float* out, float* lse, const float* qkv,
                       const Dropout& dropout, AttentionSize size) {
  parallel.each(size.B * size.NH, [&](std::int64_t head) {
    forward_head(out + size.out_offset(head), lse + head * size.T, Head(qkv, size, head), dropout);
  });
}

void attention_backward(const Parallel& parallel, GradOut<float> dqkv, const float* dout, const float* out,
                        const float* lse, const float* qkv, const Dropout& dropout, AttentionSize size) {
  if (!dqkv.accumulate) {
    parallel.each(size.B * size.T,
                  [&](std::int64_t row) { std::fill_n(dqkv.data + row * size.row(), size.row(), 0.0f); });
  }
  parallel.each(size.B * size.NH, [&](std::int64_t head) {
    backward_head(dqkv.data + size.qkv_offset(head), dout + size.out_offset(head),
                  out + size.out_offset(head), lse + head * size.T, Head(qkv, size, head), dropout);
  });
}

}  // namespace stagegpt::vectorised
