// Causal self-attention, forward (formulas in attention.cuh), from the simplest kernel to the fastest:
//   v1  one thread per query; its scores, a row of a T × T matrix, are in global memory;
//   v2  one block per query; its scores are in shared memory, and threads share the keys;
//   v3  one block per 64 queries, a thread for each; tiles of 32 keys in shared memory, and a softmax that is
//       computed online, so that a score is used at once and never stored;
//   v4  attention_flash.cuh in f32: 64 queries per block, but 256 threads, each with parts of four queries;
//   v5  attention_flash.cuh in bf16: tensor cores, 128 queries per block.
// v1 to v3 compute in f32, from inputs in f32 or bf16.
//
// A query and one of its keys take 4·HS FLOP: 2·HS for the score, 2·HS for its share of the output. With s
// bytes per element, a FLOP costs these bytes of memory (without the query and the output, which are read and
// written once):
//
//        global        shared, of a thread   what is gained
//   v1   s/2 + 1 + 3/HS  none                the start: it also needs B·NH·T·T floats of memory
//   v2   s/2             1 + 3/HS            scores leave global memory, and 128 threads share a query
//   v3   s/(2·64)        2                   a key is read from global memory once for 64 queries
//   v4   s/(2·64)        5/4                 16 threads for four queries, and copies while others compute
//   v5   s/(2·128)       1/32 (of a warp)    products on tensor cores; half the bytes, twice the queries
//
// v1 and v2 read each key and value once for each query: 2·HS·s bytes. v1 writes a score, reads it for its
// exponential, writes that, and reads it for each of the HS channels of the output: 4·(HS + 3) bytes. v3's
// thread reads each key and value of a tile, 2·4·HS bytes; all lanes of a warp read the same element, which
// is one access. v4's thread reads 2 keys for 4 queries at a time. v5's warp reads a key once for 32 queries.
#pragma once

#include "stage2_cuda/kernels/attention_flash.cuh"

namespace stagegpt::gpu {

// The product of two rows of a head.
template <class Real>
__device__ float dot(const Real* a, const Real* b, int HS) {
  float sum = 0;
  for (int i = 0; i < HS; ++i) sum += as_float(a[i]) * as_float(b[i]);
  return sum;
}

// The rows of q, k and v of a block's head; blocks (·, y) have the same head for all y.
template <class Real>
struct HeadInputs {
  RowsOfHead<const Real> q, k, v;

  __device__ HeadInputs(const HeadOfBlock& head, const AttentionSize& s, const Real* qkv)
      : q(head.rows(s, qkv, false, 0, 3)),
        k(head.rows(s, qkv, false, 1, 3)),
        v(head.rows(s, qkv, false, 2, 3)) {}
};

inline constexpr int kThreadsOfQueries = 64;  // v1: threads per block

// scores (B,NH,T,T): row t holds the scores of query t, then their exponentials.
template <class Real>
static __global__ void attention_v1_kernel(Real* out, float* lse, float* scores, const Real* qkv,
                                           AttentionSize s) {
  const std::int64_t t = static_cast<std::int64_t>(blockIdx.y) * kThreadsOfQueries + threadIdx.x;
  if (t >= s.T) return;
  const HeadOfBlock head(s);
  const HeadInputs<Real> in(head, s, qkv);
  float* const score = scores + head.row(s, t) * s.T;
  float max = -INFINITY, sum = 0;
  for (std::int64_t u = 0; u <= t; ++u) {
    score[u] = s.scale * dot(in.q.data + t * in.q.ld, in.k.data + u * in.k.ld, in.q.HS);
    max = fmaxf(max, score[u]);
  }
  for (std::int64_t u = 0; u <= t; ++u) {
    score[u] = expf(score[u] - max);
    sum += score[u];
  }
  const RowsOfHead<Real> to = head.rows(s, out, false);
  for (int i = 0; i < to.HS; ++i) {
    float o = 0;
    for (std::int64_t u = 0; u <= t; ++u) o += score[u] * as_float(in.v.data[u * in.v.ld + i]);
    to.data[t * to.ld + i] = rounded_to<Real>(o / sum);
  }
  lse[head.row(s, t)] = max + logf(sum);
}

inline constexpr int kQueryThreads = 128;  // v2: threads per query

template <class Real>
static __global__ void attention_v2_kernel(Real* out, float* lse, const Real* qkv, AttentionSize s) {
  STAGEGPT_DYNAMIC_SHARED(float, scores);  // (T)
  const std::int64_t t = blockIdx.y;
  const HeadOfBlock head(s);
  const HeadInputs<Real> in(head, s, qkv);
  MaxAndSum own = {-INFINITY, 0};
  for (std::int64_t u = threadIdx.x; u <= t; u += kQueryThreads) {
    const float score = s.scale * dot(in.q.data + t * in.q.ld, in.k.data + u * in.k.ld, in.q.HS);
    scores[u] = score;
    own = with(own, Floats<1>{{score}});
  }
  const MaxAndSum all = block_merge<kQueryThreads>(own);
  for (std::int64_t u = threadIdx.x; u <= t; u += kQueryThreads) {
    const float score = scores[u];
    scores[u] = expf(score - all.max);
  }
  __syncthreads();
  const RowsOfHead<Real> to = head.rows(s, out, false);
  for (int i = static_cast<int>(threadIdx.x); i < to.HS; i += kQueryThreads) {
    float o = 0;
    for (std::int64_t u = 0; u <= t; ++u) o += scores[u] * as_float(in.v.data[u * in.v.ld + i]);
    to.data[t * to.ld + i] = rounded_to<Real>(o / all.sum);
  }
  if (threadIdx.x == 0) lse[head.row(s, t)] = all.max + logf(all.sum);
}

// v3: queries per block, keys per tile, and the largest head size. A query and its output are in registers.
inline constexpr int kTileQueries = 64, kTileKeys = 32, kTileHeadSize = 64;

// tile[r][i] = row first + r of a head, zero beyond it.
template <class Shared, class Real>
__device__ void load_keys(Shared& tile, const RowsOfHead<const Real>& rows, std::int64_t first) {
  for (int e = static_cast<int>(threadIdx.x); e < kTileKeys * kTileHeadSize; e += kTileQueries) {
    const int r = e / kTileHeadSize, i = e % kTileHeadSize;
    const bool exists = first + r < rows.T && i < rows.HS;
    tile[e] = exists ? as_float(rows.data[(first + r) * rows.ld + i]) : 0.0f;
  }
}

// A query, and its softmax online: of the keys so far, `max` is the largest score m, `sum` is Σ exp(score -
// m) and out[i] is Σ exp(score - m)·v[i].
struct OnlineQuery {
  float q[kTileHeadSize] = {}, out[kTileHeadSize] = {};
  float max = -INFINITY, sum = 0;

  // Adds key r of the tiles.
  template <class Shared>
  __device__ void add(const Shared& keys, const Shared& values, int r) {
    float score = 0;
    STAGEGPT_UNROLL for (int i = 0; i < kTileHeadSize; i += 4) {
      const Float4 k = load4(keys, r * kTileHeadSize + i);
      score += q[i] * k.x + q[i + 1] * k.y + q[i + 2] * k.z + q[i + 3] * k.w;
    }
    if (score > max) {
      const float kept = expf(max - score);  // 0 at the first key
      STAGEGPT_UNROLL for (int i = 0; i < kTileHeadSize; ++i) out[i] *= kept;
      sum *= kept;
      max = score;
    }
    const float p = expf(score - max);
    sum += p;
    STAGEGPT_UNROLL for (int i = 0; i < kTileHeadSize; i += 4) {
      const Float4 v = load4(values, r * kTileHeadSize + i);
      out[i] += p * v.x, out[i + 1] += p * v.y, out[i + 2] += p * v.z, out[i + 3] += p * v.w;
    }
  }
};

template <class Real>
static __global__ void __launch_bounds__(kTileQueries)
    attention_v3_kernel(Real* out, float* lse, const Real* qkv, AttentionSize s) {
  STAGEGPT_SHARED(float, keys, kTileKeys* kTileHeadSize);
  STAGEGPT_SHARED(float, values, kTileKeys* kTileHeadSize);
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.y) * kTileQueries, t = first + threadIdx.x;
  const HeadOfBlock head(s);
  const HeadInputs<Real> in(head, s, qkv);
  OnlineQuery query;
  STAGEGPT_UNROLL for (int i = 0; i < kTileHeadSize; ++i) {
    if (t < s.T && i < in.q.HS) query.q[i] = s.scale * as_float(in.q.data[t * in.q.ld + i]);
  }
  for (std::int64_t u0 = 0; u0 < s.T && u0 < first + kTileQueries; u0 += kTileKeys) {
    __syncthreads();  // all have finished with the tiles before
    load_keys(keys, in.k, u0);
    load_keys(values, in.v, u0);
    __syncthreads();
    for (int r = 0; r < kTileKeys && u0 + r <= t; ++r) query.add(keys, values, r);
  }
  if (t >= s.T) return;
  const RowsOfHead<Real> to = head.rows(s, out, false);
  STAGEGPT_UNROLL for (int i = 0; i < kTileHeadSize; ++i) {
    if (i < to.HS) to.data[t * to.ld + i] = rounded_to<Real>(query.out[i] / query.sum);
  }
  lse[head.row(s, t)] = query.max + logf(query.sum);
}

// Blocks (head, y), of `rows` queries each.
inline dim3 attention_grid(AttentionSize s, int rows) {
  return dim3(static_cast<unsigned>(s.B * s.NH), static_cast<unsigned>(parts(s.T, rows)));
}

// Arguments of all versions: out (B,T,C) and lse (B,NH,T) of qkv (B,T,3C); scores (B,NH,T,T) for v1.
template <class Real>
struct AttentionCall {
  Real* out;
  float *lse, *scores;
  const Real* qkv;
  AttentionSize s;
};

template <class Real>
void attention_v1(StreamHandle stream, const AttentionCall<Real>& call) {
  launch<attention_v1_kernel<Real>>(attention_grid(call.s, kThreadsOfQueries), dim3(kThreadsOfQueries), 0,
                                    stream, call.out, call.lse, call.scores, call.qkv, call.s);
}

template <class Real>
void attention_v2(StreamHandle stream, const AttentionCall<Real>& call) {
  launch<attention_v2_kernel<Real>>(attention_grid(call.s, 1), dim3(kQueryThreads),
                                    static_cast<std::size_t>(call.s.T) * sizeof(float), stream, call.out,
                                    call.lse, call.qkv, call.s);
}

template <class Real>
void attention_v3(StreamHandle stream, const AttentionCall<Real>& call) {
  check(call.s.HS <= kTileHeadSize, "attention v3: heads of ", call.s.HS, " channels");
  launch<attention_v3_kernel<Real>>(attention_grid(call.s, kTileQueries), dim3(kTileQueries), 0, stream,
                                    call.out, call.lse, call.qkv, call.s);
}

// v4 in f32, v5 in bf16.
template <class Real>
void attention_flash(StreamHandle stream, const AttentionCall<Real>& call) {
  check(call.s.HS <= kTileHeadSize, "attention v4: heads of ", call.s.HS, " channels");
  flash_forward_heads<std::conditional_t<std::is_same_v<Real, float>, F32Math, Bf16Math>, kTileHeadSize>(
      stream, call.out, call.lse, call.qkv, Dropout{}, call.s);
}

}  // namespace stagegpt::gpu
