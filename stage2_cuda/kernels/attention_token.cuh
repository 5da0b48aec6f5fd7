// Attention of one new token, at position t of its text, with a KV cache:
//   out = Σ_{u <= t} p[u]·v[u],  p = softmax(scale·q·k[u]),
// with k[u], v[u] in row u of the cache, where the key and the value of the new token are stored first.
//
// A text of one token has little work for each head but many keys to read. So the keys of a head are divided
// among blocks of kTokenKeys keys. Each leaves, for its keys, the maximum score m, the denominator
// d = Σ exp(score - m), and Σ exp(score - m)·v. The block of a head that finishes last adds them, in the
// order of the keys (flash-decoding: Dao, Haziza, Massa and Sizov, 2023). kKeyLanes neighbouring lanes read a
// key, or a value, 16 bytes each.
//
// The position may be in device memory, so that a recorded launch is right for every token: the grid has
// blocks for a full cache, and those without keys end at once.
#pragma once

#include "stage2_cuda/kernels/attention_cached.cuh"

namespace stagegpt::gpu {

inline constexpr int kTokenKeys = 64, kTokenThreads = 128, kKeyLanes = 8;
inline constexpr int kKeyGroups = kTokenThreads / kKeyLanes;  // keys that a block reads at once

// What the blocks of a head leave for the last of them: m, d, and a sum for each channel.
__host__ __device__ constexpr std::int64_t part_width(std::int64_t HS) { return HS + 2; }

struct TokenParts {
  std::int64_t chunks, heads;  // blocks of a head; heads of all texts, each of which has a counter
  std::int64_t scratch_size;   // number of floats

  explicit TokenParts(const CachedAttentionSize& s)
      : chunks(parts(s.P, kTokenKeys)), heads(s.B * s.NH), scratch_size(heads * chunks * part_width(s.HS)) {}
};

// out (HS) of a head from the parts (chunks,HS+2) of its blocks.
template <class T>
__device__ void add_parts(T* out, const float* own_parts, std::int64_t chunks, std::int64_t HS) {
  const std::int64_t width = part_width(HS);
  float max = -INFINITY, denominator = 0;
  for (std::int64_t i = 0; i < chunks; ++i) max = fmaxf(max, own_parts[i * width]);
  for (std::int64_t i = 0; i < chunks; ++i)
    denominator += expf(own_parts[i * width] - max) * own_parts[i * width + 1];
  for (std::int64_t c = threadIdx.x; c < HS; c += kTokenThreads) {
    float sum = 0;
    for (std::int64_t i = 0; i < chunks; ++i)
      sum += expf(own_parts[i * width] - max) * own_parts[i * width + 2 + c];
    out[c] = rounded_to<T>(sum / denominator);
  }
}

// weights[u] = scale·q·k[u] for the keys of a block, -∞ beyond them.
template <int V, class T, class Weights>
__device__ void score_keys(Weights& weights, const T* q, const T* k, std::int64_t keys,
                           const CachedAttentionSize& s) {
  const int group = static_cast<int>(threadIdx.x) / kKeyLanes,
            place = static_cast<int>(threadIdx.x) % kKeyLanes * V;
  STAGEGPT_UNROLL for (int u = group; u < kTokenKeys; u += kKeyGroups) {
    float score = 0;
    for (std::int64_t c = place; c < s.HS && u < keys; c += kKeyLanes * V) {
      const Floats<V> query = load<V>(q, c), key = load<V>(k, u * 2 * s.channels() + c);
      STAGEGPT_UNROLL for (int i = 0; i < V; ++i) score += query.v[i] * key.v[i];
    }
    score = warp_sum<kKeyLanes>(score);
    if (place == 0) weights[u] = u < keys ? s.scale * score : -INFINITY;
  }
  __syncthreads();
}

// Replaces scores by exp(score - maximum). Every warp computes both results, so that all threads have them.
template <class Weights>
__device__ MaxAndSum exponentials(Weights& weights) {
  const float first = weights[lane_index()], second = weights[lane_index() + kWarp],
              max = warp_max(fmaxf(first, second)), first_weight = expf(first - max),
              second_weight = expf(second - max), sum = warp_sum(first_weight + second_weight);
  __syncthreads();  // all have read the scores
  if (threadIdx.x < kWarp) {
    weights[threadIdx.x] = first_weight;
    weights[threadIdx.x + kWarp] = second_weight;
  }
  __syncthreads();
  return {max, sum};
}

// out[c] = Σ weights[u]·v[u][c]; `sums` is shared memory for each group of lanes.
template <int V, class T, class Weights, class Sums>
__device__ void add_values(float* out, Sums& sums, const Weights& weights, const T* v, std::int64_t keys,
                           const CachedAttentionSize& s) {
  constexpr int kColumns = kKeyLanes * V;  // channels that a group of lanes reads at once
  const int group = static_cast<int>(threadIdx.x) / kKeyLanes,
            place = static_cast<int>(threadIdx.x) % kKeyLanes * V, column = static_cast<int>(threadIdx.x);
  for (std::int64_t from = 0; from < s.HS; from += kColumns) {
    Floats<V> sum = {};
    STAGEGPT_UNROLL for (int u = group; u < kTokenKeys; u += kKeyGroups) {
      if (u >= keys || from + place >= s.HS) break;
      const Floats<V> value = load<V>(v, u * 2 * s.channels() + from + place);
      STAGEGPT_UNROLL for (int i = 0; i < V; ++i) sum.v[i] += weights[u] * value.v[i];
    }
    store_floats(sums, group * kColumns + place, sum);
    __syncthreads();
    if (column < kColumns && from + column < s.HS) {
      float total = 0;
      for (int i = 0; i < kKeyGroups; ++i) total += sums[i * kColumns + column];
      out[from + column] = total;
    }
    __syncthreads();
  }
}

template <class T, int V>
static __global__ void token_attention_kernel(T* out, T* cache, const T* qkv, const std::int32_t* position,
                                              float* scratch, int* finished, CachedAttentionSize s) {
  STAGEGPT_SHARED(float, weights, kTokenKeys);
  STAGEGPT_SHARED(float, sums, kKeyGroups* kKeyLanes* V);
  const std::int64_t last = position ? *position : s.first, chunk = blockIdx.x, begin = chunk * kTokenKeys;
  if (begin > last) return;
  const std::int64_t C = s.channels(), head = blockIdx.y, b = blockIdx.z, left = last + 1 - begin,
                     keys = left < kTokenKeys ? left : kTokenKeys;
  const T* q = qkv + b * 3 * C + head * s.HS;
  T *k = cache + (b * s.P + begin) * 2 * C + head * s.HS, *v = k + C;
  if (left <= kTokenKeys) {  // the new token is the last of these keys
    for (std::int64_t c = threadIdx.x; c < s.HS; c += kTokenThreads) {
      k[(left - 1) * 2 * C + c] = q[C + c];
      v[(left - 1) * 2 * C + c] = q[2 * C + c];
    }
    __syncthreads();
  }
  score_keys<V>(weights, q, static_cast<const T*>(k), keys, s);
  const MaxAndSum softmax = exponentials(weights);
  float* const head_parts = scratch + (b * s.NH + head) * gridDim.x * part_width(s.HS);
  float* const own_part = head_parts + chunk * part_width(s.HS);
  if (threadIdx.x == 0) {
    own_part[0] = softmax.max;
    own_part[1] = softmax.sum;
  }
  add_values<V>(own_part + 2, sums, weights, static_cast<const T*>(v), keys, s);
  const std::int64_t with_keys = last / kTokenKeys + 1;
  if (is_last_block(finished + b * s.NH + head, with_keys))
    add_parts(out + b * C + head * s.HS, head_parts, with_keys, s.HS);
}

// out (B,1,C), cache (B,P,2C), qkv (B,1,3C). `position` is in device memory, or null: then it is s.first.
// `scratch` has TokenParts::scratch_size elements, `finished` a zero for each head of each text; it is zero
// again afterwards.
template <class T>
void token_attention(StreamHandle stream, T* out, T* cache, const T* qkv, const std::int32_t* position,
                     float* scratch, int* finished, CachedAttentionSize s) {
  if (s.B == 0) return;
  const dim3 grid(static_cast<unsigned>(TokenParts(s).chunks), static_cast<unsigned>(s.NH),
                  static_cast<unsigned>(s.B));
  const auto launch_heads = [&]<int V>(std::integral_constant<int, V>) {
    launch<token_attention_kernel<T, V>>(grid, dim3(kTokenThreads), 0, stream, out, cache, qkv, position,
                                         scratch, finished, s);
  };
  if (in_vectors<kVector<T>>(s.HS, cache, qkv))
    return launch_heads(std::integral_constant<int, kVector<T>>());
  launch_heads(std::integral_constant<int, 1>());
}

}  // namespace stagegpt::gpu
