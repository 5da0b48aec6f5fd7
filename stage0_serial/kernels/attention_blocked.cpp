#include "stage0_serial/kernels/attention_blocked.h"

#include <limits>

#include "stage0_serial/kernels/matmul_tiled.h"
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

// One head's sizes and inputs, for forward and backward.
struct Head {
  Head(const float* qkv, AttentionSize size, std::int64_t head)
      : s(size),
        index(head),
        width(round_up_to_lanes(size.HS)),
        scale(static_cast<float>(size.scale)),
        q(qkv + size.qkv_offset(head)),
        k(q + size.channels()),
        v(k + size.channels()) {}

  // Index in the dropout sequence of the element of query t and key u.
  std::int64_t dropout_index(std::int64_t t, std::int64_t u) const { return (index * s.T + t) * s.T + u; }

  AttentionSize s;
  std::int64_t index, width;  // width: HS, rounded up to whole vectors
  float scale;
  const float *q, *k, *v;
};

// A rectangle of scores: queries from t0 on, keys from u0 on. Those of keys after their query are not needed.
struct Block {
  std::int64_t t0, queries, u0, keys;
};

// Asks for a row that is copied soon: with rows of other heads between them, rows are too far apart for the
// processor to see them coming.
void prefetch_row(const float* row, const Head& head) {
  for (std::int64_t i = 0; i < head.s.HS; i += Scratch::kLineFloats) __builtin_prefetch(row + i);
}
constexpr std::int64_t kAhead = 6;  // rows

// out (n,width) = n rows of HS elements that are `stride` apart; the other columns are zero.
void copy_rows(float* out, const float* rows, std::int64_t stride, std::int64_t n, const Head& head) {
  for (std::int64_t i = 0; i < n; ++i) {
    prefetch_row(rows + std::min(i + kAhead, n - 1) * stride, head);
    std::copy_n(rows + i * stride, head.s.HS, out + i * head.width);
    std::fill(out + i * head.width + head.s.HS, out + (i + 1) * head.width, 0.0f);
  }
}

// Panels (HS,kPanel), one after another, of n rows of HS elements that are `stride` apart: each holds kPanel
// rows, transposed. Missing rows are zero.
void pack_transposed(float* panels, const float* rows, std::int64_t stride, std::int64_t n,
                     const Head& head) {
  const std::int64_t HS = head.s.HS;
  for (std::int64_t j = 0; j < n; j += kPanel, panels += HS * kPanel) {
    if (n - j < kPanel) std::fill_n(panels, HS * kPanel, 0.0f);
    for (std::int64_t column = 0; column < std::min(kPanel, n - j); ++column) {
      const float* row = rows + (j + column) * stride;
      prefetch_row(rows + std::min(j + column + kAhead, n - 1) * stride, head);
      for (std::int64_t i = 0; i < HS; ++i) panels[i * kPanel + column] = row[i];
    }
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

// Of one query: Σ exp(scale·(score - max)), and lse.
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

void forward_head(float* y, float* lse, const Head& head, const Dropout& dropout) {
  thread_local Scratch scratch;
  const AttentionSize& s = head.s;
  const std::int64_t ld = row_length(s.T), panels = (s.T + kPanel - 1) / kPanel;
  const auto [k_panels, v, p, sums, factors] =
      scratch.pieces({panels * kPanel * s.HS, s.T * head.width, kQueries * ld, kQueries * head.width, s.T});
  pack_transposed(k_panels, head.k, s.row(), s.T, head);
  copy_rows(v, head.v, s.row(), s.T, head);
  for (std::int64_t t0 = 0; t0 < s.T; t0 += kQueries) {
    const std::int64_t t1 = std::min(s.T, t0 + kQueries);
    const Block block{t0, t1 - t0, 0, t1};
    causal_scores(p, ld, head.q + t0 * s.row(), s.row(), k_panels, block, head);
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
      for (std::int64_t i = 0; i < s.HS; ++i)
        y[t * s.channels() + i] = inverse[t - t0] * sums[(t - t0) * head.width + i];
    }
  }
}

// Of one query and n keys: replaces the scores in `p` by probabilities times dropout factors, and dp in `ds`
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

float dot(const float* a, const float* b, std::int64_t n) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

// Rows of a gradient = or += n rows (n,width).
void put_rows(float* out, const float* rows, std::int64_t n, const Head& head, bool accumulate) {
  for (std::int64_t i = 0; i < n; ++i) {
    float* to = out + i * head.s.row();
    const float* from = rows + i * head.width;
    if (accumulate) {
      for (std::int64_t j = 0; j < head.s.HS; ++j) to[j] += from[j];
    } else {
      std::copy_n(from, head.s.HS, to);
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
void backward_head(float* dqkv, bool accumulate, const float* dout, const float* out, const float* lse,
                   const Head& head, const Dropout& dropout) {
  const std::int64_t T = head.s.T, C = head.s.channels(), row = head.s.row();
  const BackwardPieces at = backward_pieces(head);
  copy_rows(at.q, head.q, row, T, head);
  copy_rows(at.dout, dout, C, T, head);
  for (std::int64_t t = 0; t < T; ++t) at.D[t] = dot(dout + t * C, out + t * C, head.s.HS);
  for (std::int64_t u0 = 0; u0 < T; u0 += kKeys) {
    const std::int64_t keys = std::min(kKeys, T - u0);
    copy_rows(at.k, head.k + u0 * row, row, keys, head);
    pack_transposed(at.k_panels, head.k + u0 * row, row, keys, head);
    pack_transposed(at.v_panels, head.v + u0 * row, row, keys, head);
    std::fill_n(at.dk, keys * head.width, 0.0f);
    std::fill_n(at.dv, keys * head.width, 0.0f);
    for (std::int64_t t0 = u0; t0 < T; t0 += kQueries) {
      const std::int64_t queries = std::min(kQueries, T - t0);
      backward_block(at, {t0, queries, u0, std::min(keys, t0 + queries - u0)}, lse, head, dropout);
    }
    put_rows(dqkv + u0 * row + C, at.dk, keys, head, accumulate);
    put_rows(dqkv + u0 * row + 2 * C, at.dv, keys, head, accumulate);
  }
  put_rows(dqkv, at.dq, T, head, accumulate);
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
  parallel.each(size.B * size.NH, [&](std::int64_t head) {
    backward_head(dqkv.data + size.qkv_offset(head), dqkv.accumulate, dout + size.out_offset(head),
                  out + size.out_offset(head), lse + head * size.T, Head(qkv, size, head), dropout);
  });
}

}  // namespace stagegpt::vectorised
