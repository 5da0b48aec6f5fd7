#include "stage0_serial/kernels/attention_blocked.h"

#include <limits>

#include "stage0_serial/kernels/matmul_tiled.h"
#include "stage0_serial/kernels/packed_tiles.h"
#include "stage0_serial/kernels/scratch.h"
#include "stage0_serial/kernels/simd.h"
#include "stage0_serial/kernels/vector_math.h"

namespace stagegpt::vectorised {
namespace {

constexpr std::int64_t kRows = 12;            // the rows of a register tile, or of two
constexpr std::int64_t kQueries = 4 * kRows;  // per block
constexpr std::int64_t kPanel = 2 * kLanes;   // keys per packed panel: the columns of a register tile
constexpr std::int64_t kKeys = 2 * kQueries;  // per block of the backward
static_assert(kKeys % kPanel == 0);

// Floats from one row of n columns to the next: whole vectors, and an odd number of them. With a power of
// two, the rows of a tile would begin in the same set of the cache and evict each other.
constexpr std::int64_t row_length(std::int64_t n) { return (round_up_to_lanes(n) / kLanes | 1) * kLanes; }

// One head's sizes, for forward and backward.
struct Head {
  Head(AttentionSize size, std::int64_t head)
      : s(size), index(head), width(round_up_to_lanes(size.HS)), scale(static_cast<float>(size.scale)) {}

  // Index in the dropout sequence of the element of query t and key u.
  std::int64_t dropout_index(std::int64_t t, std::int64_t u) const { return (index * s.T + t) * s.T + u; }

  AttentionSize s;
  std::int64_t index, width;  // width: HS, rounded up to whole vectors
  float scale;
};

// Its inputs.
template <class T>
struct HeadRows {
  HeadRows(const T* qkv, const Head& head)
      : q(qkv + head.s.qkv_offset(head.index)), k(q + head.s.channels()), v(k + head.s.channels()) {}

  const T *q, *k, *v;
};

// A rectangle of scores: queries from t0 on, keys from u0 on. Those of keys after their query are not needed.
struct Block {
  std::int64_t t0, queries, u0, keys;
};

// Asks for a row that is read, or with kWrite written, soon: with rows of other heads between them, rows are
// too far apart for the processor to see them coming.
template <bool kWrite = false, class T>
void prefetch_row(const T* row, const Head& head) {
  constexpr std::int64_t kLine = Scratch::kLineFloats * sizeof(float) / sizeof(T);
  for (std::int64_t i = 0; i < head.s.HS; i += kLine) __builtin_prefetch(row + i, kWrite);
}
constexpr std::int64_t kAhead = 6;  // rows

// out (n,width) = n rows of HS elements that are `stride` apart; the other columns are zero.
template <class T>
void copy_rows(float* out, const T* rows, std::int64_t stride, std::int64_t n, const Head& head) {
  for (std::int64_t i = 0; i < n; ++i) {
    prefetch_row(rows + std::min(i + kAhead, n - 1) * stride, head);
    const T* row = rows + i * stride;
    for (std::int64_t c = 0; c < head.s.HS; ++c) out[i * head.width + c] = widened(row[c]);
    std::fill(out + i * head.width + head.s.HS, out + (i + 1) * head.width, 0.0f);
  }
}

// Panels (HS,kPanel), one after another, of n rows of HS elements that are `stride` apart: each holds kPanel
// rows, transposed. Missing rows are zero.
template <class T>
void pack_transposed(float* panels, const T* rows, std::int64_t stride, std::int64_t n, const Head& head) {
  const std::int64_t HS = head.s.HS;
  for (std::int64_t j = 0; j < n; j += kPanel, panels += HS * kPanel) {
    for (std::int64_t next = j + kPanel; next < std::min(j + 2 * kPanel, n); ++next)
      prefetch_row(rows + next * stride, head);
    pack<F32Words, kPanel>(panels, MatrixView<T>{rows + j * stride, stride, 1}, std::min(kPanel, n - j), HS);
  }
}

// out (queries,keys), rows ld elements apart: the products of rows of queries (`rows`, stride apart) with
// rows of keys (`panels`). Of a panel, queries before all its keys are skipped.
void causal_scores(float* out, std::int64_t ld, const float* rows, std::int64_t stride, const float* panels,
                   const Block& block, const Head& head) {
  for (std::int64_t j = 0; j < block.keys; j += kPanel, panels += head.s.HS * kPanel) {
    const std::int64_t before = std::max<std::int64_t>(0, block.u0 + j - block.t0) / kRows * kRows;
    tile_product(out + before * ld + j, ld, row_major(rows + before * stride, stride), panels, kPanel,
                 {block.queries - before, round_up_to_lanes(std::min(kPanel, block.keys - j)), head.s.HS},
                 false);
  }
}

// out (queries,width) = or += probabilities (queries,keys), rows ld elements apart, times values
// (keys,width). Keys after all queries of a register tile are skipped.
void causal_sums(float* out, const float* probabilities, std::int64_t ld, const float* values,
                 const Block& block, const Head& head, bool accumulate) {
  for (std::int64_t r = 0; r < block.queries; r += kRows) {
    const std::int64_t keys = std::min(block.keys, block.t0 + r + kRows - block.u0);
    tile_product(out + r * head.width, head.width, row_major(probabilities + r * ld, ld), values, head.width,
                 {std::min(kRows, block.queries - r), head.width, keys}, accumulate);
  }
}

// out (keys,width) += probabilitiesᵀ times rows of queries (queries,width). Queries before all keys of a
// register tile are skipped.
void add_causal_transposed_sums(float* out, const float* probabilities, std::int64_t ld, const float* rows,
                                const Block& block, const Head& head) {
  for (std::int64_t j = 0; j < block.keys; j += kRows) {
    const std::int64_t before = std::max<std::int64_t>(0, block.u0 + j - block.t0);
    tile_product(out + j * head.width, head.width,
                 row_major(probabilities + before * ld + j, ld).transposed(), rows + before * head.width,
                 head.width, {std::min(kRows, block.keys - j), head.width, block.queries - before}, true);
  }
}

// The softmax of one query: Σ exp(scale·(score - max)), and lse.
struct Softmax {
  float sum, lse;
};

// Replaces n scores by exp(scale·(score - max)), and those from there to `end` by zero. scale > 0.
Softmax softmax_row(float* p, std::int64_t n, std::int64_t end, float scale) {
  const std::int64_t vectors = round_up_to_lanes(n);
  std::fill(p + n, p + vectors, -std::numeric_limits<float>::infinity());  // their exp is below 1e-37
  const float max = max_of(p, vectors);
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t u = 0; u < vectors; ++u) {
    p[u] = vector_exp(scale * (p[u] - max));
    sum += p[u];
  }
  std::fill(p + n, p + std::max(end, vectors), 0.0f);
  return {sum, scale * max + std::log(sum)};
}

void drop_row(float* p, const Dropout& dropout, std::int64_t first, std::int64_t n, float* factors) {
  dropout_factors(factors, dropout, first, first + n);
  for (std::int64_t u = 0; u < n; ++u) p[u] *= factors[u];
}

// Rows of queries to multiply, `stride` floats apart.
struct Queries {
  const float* rows;
  std::int64_t stride;
};

// The queries of f32 as they are, those of bf16 copied.
Queries queries_of(const float* rows, float* /*copy*/, std::int64_t /*n*/, const Head& head) {
  return {rows, head.s.row()};
}
Queries queries_of(const Bf16* rows, float* copy, std::int64_t n, const Head& head) {
  copy_rows(copy, rows, head.s.row(), n, head);
  return {copy, head.width};
}

template <class T>
void forward_head(T* y, float* lse, const HeadRows<T>& in, const Head& head, const Dropout& dropout) {
  thread_local Scratch scratch;
  const AttentionSize& s = head.s;
  const std::int64_t ld = row_length(s.T), panels = (s.T + kPanel - 1) / kPanel;
  const auto [k_panels, v, q, p, sums, factors] =
      scratch.pieces({panels * kPanel * s.HS, s.T * head.width, kQueries * head.width, kQueries * ld,
                      kQueries * head.width, s.T});
  pack_transposed(k_panels, in.k, s.row(), s.T, head);
  copy_rows(v, in.v, s.row(), s.T, head);
  for (std::int64_t t0 = 0; t0 < s.T; t0 += kQueries) {
    const std::int64_t t1 = std::min(s.T, t0 + kQueries);
    const Block block{t0, t1 - t0, 0, t1};
    const Queries queries = queries_of(in.q + t0 * s.row(), q, t1 - t0, head);
    causal_scores(p, ld, queries.rows, queries.stride, k_panels, block, head);
    float inverse[kQueries];
    for (std::int64_t t = t0; t < t1; ++t) {
      float* row = p + (t - t0) * ld;
      const Softmax softmax = softmax_row(row, t + 1, t1, head.scale);
      lse[t] = softmax.lse;
      inverse[t - t0] = 1 / softmax.sum;
      if (dropout.active()) drop_row(row, dropout, head.dropout_index(t, 0), t + 1, factors);
    }
    causal_sums(sums, p, ld, v, block, head, false);
    for (std::int64_t t = t0; t < t1; ++t) {
      prefetch_row<true>(y + std::min(t + kAhead, s.T - 1) * s.channels(), head);
      for (std::int64_t i = 0; i < s.HS; ++i)
        y[t * s.channels() + i] = rounded_to<T>(inverse[t - t0] * sums[(t - t0) * head.width + i]);
    }
  }
}

// For one query and n keys, replaces the scores in `p` by probabilities times dropout factors, and dp in `ds`
// by ds; those from n to `end` become zero.
void backward_row(float* p, float* ds, std::int64_t n, std::int64_t end, float scale, float lse, float D,
                  const float* factors) {
  const std::int64_t vectors = round_up_to_lanes(n);
  if (factors) {
#pragma omp simd
    for (std::int64_t u = 0; u < vectors; ++u) {
      const float probability = vector_exp(scale * p[u] - lse);
      ds[u] = scale * probability * (factors[u] * ds[u] - D);
      p[u] = factors[u] * probability;
    }
  } else {
#pragma omp simd
    for (std::int64_t u = 0; u < vectors; ++u) {
      p[u] = vector_exp(scale * p[u] - lse);
      ds[u] = scale * p[u] * (ds[u] - D);
    }
  }
  std::fill(p + n, p + end, 0.0f);
  std::fill(ds + n, ds + end, 0.0f);
}

template <class T>
float dot(const T* a, const T* b, std::int64_t n) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < n; ++i) sum += widened(a[i]) * widened(b[i]);
  return sum;
}

// Rows of a gradient = or += n rows (n,width).
template <class T>
void put_rows(T* out, const float* rows, std::int64_t n, const Head& head, bool accumulate) {
  for (std::int64_t i = 0; i < n; ++i) {
    prefetch_row<true>(out + std::min(i + kAhead, n - 1) * head.s.row(), head);
    T* to = out + i * head.s.row();
    const float* from = rows + i * head.width;
    if (accumulate) {
      for (std::int64_t j = 0; j < head.s.HS; ++j) to[j] = rounded_to<T>(widened(to[j]) + from[j]);
    } else {
      for (std::int64_t j = 0; j < head.s.HS; ++j) to[j] = rounded_to<T>(from[j]);
    }
  }
}

// Scratch memory of a head's backward.
struct BackwardPieces {
  float *q, *dout, *dq;        // (T,width), without the gaps of qkv
  float* D;                    // (T)
  float *k, *dk, *dv;          // (kKeys,width): of one block of keys
  float *k_panels, *v_panels;  // the same keys and their values, packed
  float *p, *ds;               // (kQueries,kKeys), rows kLength floats apart
  float* factors;              // (kKeys)
};
constexpr std::int64_t kLength = row_length(kKeys);

BackwardPieces backward_pieces(const Head& head) {
  thread_local Scratch scratch;
  const std::int64_t all = head.s.T * head.width, rows = kKeys * head.width, panels = kKeys * head.s.HS,
                     scores = kQueries * kLength;
  const auto [q, dout, dq, D, k, dk, dv, k_panels, v_panels, p, ds, factors] =
      scratch.pieces({all, all, all, head.s.T, rows, rows, rows, panels, panels, scores, scores, kKeys});
  return {q, dout, dq, D, k, dk, dv, k_panels, v_panels, p, ds, factors};
}

// Adds what the block's queries contribute to dk and dv, and its keys to dq.
void backward_block(const BackwardPieces& at, const Block& block, const float* lse, const Head& head,
                    const Dropout& dropout) {
  const std::int64_t W = head.width, t0 = block.t0;
  causal_scores(at.p, kLength, at.q + t0 * W, W, at.k_panels, block, head);
  causal_scores(at.ds, kLength, at.dout + t0 * W, W, at.v_panels, block, head);
  for (std::int64_t i = 0; i < block.queries; ++i) {
    const std::int64_t t = t0 + i, n = std::min(block.keys, t + 1 - block.u0),
                       first = head.dropout_index(t, block.u0);
    if (dropout.active()) dropout_factors(at.factors, dropout, first, first + n);
    backward_row(at.p + i * kLength, at.ds + i * kLength, n, kKeys, head.scale, lse[t], at.D[t],
                 dropout.active() ? at.factors : nullptr);
  }
  add_causal_transposed_sums(at.dv, at.p, kLength, at.dout + t0 * W, block, head);
  add_causal_transposed_sums(at.dk, at.ds, kLength, at.q + t0 * W, block, head);
  causal_sums(at.dq + t0 * W, at.ds, kLength, at.k, block, head, block.u0 > 0);
}

// Computes or adds the gradients of one head's queries, keys and values, at dqkv, dqkv + C and dqkv + 2C.
template <class T>
void backward_head(T* dqkv, bool accumulate, const T* dout, const T* out, const float* lse,
                   const HeadRows<T>& in, const Head& head, const Dropout& dropout) {
  const std::int64_t tokens = head.s.T, C = head.s.channels(), row = head.s.row();
  const BackwardPieces at = backward_pieces(head);
  copy_rows(at.q, in.q, row, tokens, head);
  copy_rows(at.dout, dout, C, tokens, head);
  for (std::int64_t t = 0; t < tokens; ++t) {
    prefetch_row(out + std::min(t + kAhead, tokens - 1) * C, head);
    at.D[t] = dot(dout + t * C, out + t * C, head.s.HS);
  }
  for (std::int64_t u0 = 0; u0 < tokens; u0 += kKeys) {
    const std::int64_t keys = std::min(kKeys, tokens - u0);
    copy_rows(at.k, in.k + u0 * row, row, keys, head);
    pack_transposed(at.k_panels, in.k + u0 * row, row, keys, head);
    pack_transposed(at.v_panels, in.v + u0 * row, row, keys, head);
    std::fill_n(at.dk, keys * head.width, 0.0f);
    std::fill_n(at.dv, keys * head.width, 0.0f);
    for (std::int64_t t0 = u0; t0 < tokens; t0 += kQueries) {
      const std::int64_t queries = std::min(kQueries, tokens - t0);
      backward_block(at, {t0, queries, u0, std::min(keys, t0 + queries - u0)}, lse, head, dropout);
    }
    put_rows(dqkv + u0 * row + C, at.dk, keys, head, accumulate);
    put_rows(dqkv + u0 * row + 2 * C, at.dv, keys, head, accumulate);
  }
  put_rows(dqkv, at.dq, tokens, head, accumulate);
}

}  // namespace

template <class T>
void attention_forward(const Parallel& parallel, T* out, float* lse, const T* qkv, const Dropout& dropout,
                       AttentionSize size) {
  parallel.each(size.B * size.NH, [&](std::int64_t index) {
    const Head head(size, index);
    forward_head(out + size.out_offset(index), lse + index * size.T, HeadRows(qkv, head), head, dropout);
  });
}

template <class T>
void attention_backward(const Parallel& parallel, GradOut<T> dqkv, const T* dout, const T* out,
                        const float* lse, const T* qkv, const Dropout& dropout, AttentionSize size) {
  parallel.each(size.B * size.NH, [&](std::int64_t index) {
    const Head head(size, index);
    backward_head(dqkv.data + size.qkv_offset(index), dqkv.accumulate, dout + size.out_offset(index),
                  out + size.out_offset(index), lse + index * size.T, HeadRows(qkv, head), head, dropout);
  });
}

template void attention_forward(const Parallel&, float*, float*, const float*, const Dropout&, AttentionSize);
template void attention_forward(const Parallel&, Bf16*, float*, const Bf16*, const Dropout&, AttentionSize);
template void attention_backward(const Parallel&, GradOut<float>, const float*, const float*, const float*,
                                 const float*, const Dropout&, AttentionSize);
template void attention_backward(const Parallel&, GradOut<Bf16>, const Bf16*, const Bf16*, const float*,
                                 const Bf16*, const Dropout&, AttentionSize);

}  // namespace stagegpt::vectorised
