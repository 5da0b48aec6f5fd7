// Flash attention (Dao et al., arXiv:2205.14135), formulas in attention.cuh: a block has one tile of queries
// and walks over the keys, tile by tile, so scores exist only in registers and shared memory.
//
// The softmax is computed online, in powers of two: s is the score times log2 e. After some keys, m[t] is the
// maximum of their s, l[t] = Σ_u 2^(s - m) and o[t] = Σ_u f·2^(s - m)·v[u]; the next keys may raise m to m',
// and l and o are multiplied by 2^(m - m'). At the end out = o/l, lse = (m + log2 l)·ln 2.
//
// The kernels are templates over Math, which multiplies tiles: Fma<HS> in f32, TensorCores<HS> in bf16.
#pragma once

#include <type_traits>

#include "stage2_cuda/kernels/attention_fma.cuh"
#include "stage2_cuda/kernels/attention_mma.cuh"
#include "stage2_cuda/kernels/dropout.cuh"
#include "stage2_cuda/kernels/reduce.cuh"

namespace stagegpt::gpu {

// The largest head size. Larger ones have no room in registers.
inline constexpr std::int64_t kFlashHeadSize = 128;
inline constexpr float kLog2E = 1.44269504F, kLn2 = 0.693147181F;

// What every kernel needs. `vectors`: rows of heads can be read 16 bytes at a time.
struct FlashCall {
  AttentionSize s;
  DropoutArgument dropout;
  bool vectors;

  const std::int32_t*& device_pointer() { return dropout.device_pointer(); }
};

// The shared memory of a kernel: `fixed` tiles with the block's rows, and two tiles with the rows that it
// walks over. There are two buffers of the latter if they fit.
template <class Math, int kRows, int kColumns, int kFixed>
struct FlashTiles {
  using Real = typename Math::Real;
  static constexpr int kBlockRows = kRows, kStep = kColumns;
  static constexpr int kRowTile = kRows * Math::kStride, kColumnTile = kColumns * Math::kStride;
  static constexpr int elements(int buffers) {
    return kFixed * kRowTile + 2 * buffers * kColumnTile + kRows * Math::kScratchColumns;
  }
  // A block may have 99 KiB on every GPU of compute capability 8.0 or later; 1 KiB is for lse and D.
  static constexpr int kBuffers = elements(2) * sizeof(Real) <= (98 << 10) ? 2 : 1;
  static constexpr std::size_t kBytes = elements(kBuffers) * sizeof(Real);

  template <class Shared>
  __device__ static Tile<Shared> fixed(const Shared& memory, int i) {
    return {memory, i * kRowTile, Math::kStride};
  }
  template <class Shared>
  __device__ static Tile<Shared> walked(const Shared& memory, int i, int buffer) {
    return {memory, kFixed * kRowTile + (2 * buffer + i) * kColumnTile, Math::kStride};
  }
  // Starts to copy rows first, first + 1, … of two matrices to the tiles that are walked over.
  template <int kHS, class Shared>
  __device__ static void load(const Shared& memory, int buffer, const RowsOfHead<const Real>& a,
                              const RowsOfHead<const Real>& b, int first) {
    load_tile<kColumns, kHS>(walked(memory, 0, buffer), a, first);
    load_tile<kColumns, kHS>(walked(memory, 1, buffer), b, first);
  }
  template <class Shared>
  __device__ static Tile<Shared> scratch(const Shared& memory) {
    return {memory, kFixed * kRowTile + 2 * kBuffers * kColumnTile, Math::kScratchColumns};
  }
};

template <class Math>
using ForwardTiles = FlashTiles<Math, Math::kForwardRows, Math::kForwardColumns, 1>;

// Blocks that an SM should have at least, so that registers are limited.
constexpr int flash_blocks(int HS) { return HS <= 64 ? 2 : 1; }

// m, l and o of this thread's rows. Of l it has the part of its columns.
template <class Math, int kHS>
struct OnlineSoftmax {
  using Scores = typename Math::template Product<Math::kForwardColumns>;
  using Out = typename Math::template Product<kHS>;

  Out out;
  float max[Out::kThreadRows], sum[Out::kThreadRows] = {};

  __device__ OnlineSoftmax() {
    for (float& m : max) m = -INFINITY;
  }

  // Adds keys u0, u0 + 1, … to l, rescales o, and turns their products q·k into 2^(s - m). Row 0 is query t0.
  __device__ void add_keys(Scores& scores, float log2_scale, int t0, int u0) {
    STAGEGPT_UNROLL for (int i = 0; i < Scores::kThreadRows; ++i) {
      const int t = t0 + Scores::row(i);
      float highest = -INFINITY;
      STAGEGPT_UNROLL for (int j = 0; j < Scores::kThreadColumns; ++j) {
        float& s = scores.at(i, j);
        s = u0 + Scores::column(j) <= t ? log2_scale * s : -INFINITY;
        highest = fmaxf(highest, s);
      }
      const float new_max = fmaxf(max[i], warp_max<Scores::kRowLanes>(highest));
      const float kept = exp2f(max[i] - new_max);  // 0 at the first keys
      max[i] = new_max;
      sum[i] *= kept;
      STAGEGPT_UNROLL for (int j = 0; j < Out::kThreadColumns; ++j) out.at(i, j) *= kept;
      STAGEGPT_UNROLL for (int j = 0; j < Scores::kThreadColumns; ++j) {
        float& s = scores.at(i, j);
        s = exp2f(s - new_max);
        sum[i] += s;
      }
    }
  }
};

// The dropout factors of this thread's scores: one bit each, so that they take two registers.
template <class Scores>
struct DropoutFactors {
  static_assert(Scores::kThreadRows * Scores::kThreadColumns <= 64);
  std::uint64_t kept = ~std::uint64_t{0};
  float factor = 1;

  // query(i, j) and key(i, j): what the thread's score at (i, j) is about.
  template <class Query, class Key>
  __device__ DropoutFactors(const FlashCall& call, const HeadOfBlock& head, const Query& query,
                            const Key& key) {
    const DropoutMap map = call.dropout.map();
    if (map.p == 0) return;
    kept = 0;
    factor = map.kept;
    for (int i = 0; i < Scores::kThreadRows; ++i) {
      for (int j = 0; j < Scores::kThreadColumns; ++j) {
        const std::int64_t element = head.row(call.s, query(i, j)) * call.s.T + key(i, j);
        const bool keep = dropout_factor(map, element) > 0;
        kept |= std::uint64_t{keep} << (i * Scores::kThreadColumns + j);
      }
    }
  }

  __device__ float at(int i, int j) const {
    return (kept >> (i * Scores::kThreadColumns + j) & 1) != 0 ? factor : 0;
  }
};

// Walks over the keys and values that the block's queries see, from query `first` on. Each warp, which has
// the rows of its part of a Product, calls use(u0, k, v) if one of its queries sees key u0.
template <class Tiles, class Product, int kHS, class Shared, class Real, class Use>
__device__ void walk_keys(const Shared& memory, const Real* qkv, const HeadOfBlock& head,
                          const FlashCall& call, int first, const Use& use) {
  const int T = static_cast<int>(call.s.T), end = first + Tiles::kBlockRows;
  const int warp_begin = first + Product::first_row(), warp_end = warp_begin + Product::kWarpRows;
  walk_tiles<Tiles::kBuffers>(
      0, end < T ? end : T, Tiles::kStep,
      [&](int u0, int buffer) {
        Tiles::template load<kHS>(memory, buffer, head.rows(call.s, qkv, call.vectors, 1, 3),
                                  head.rows(call.s, qkv, call.vectors, 2, 3), u0);
      },
      [&](int u0, int buffer) {
        if (warp_begin >= T || u0 >= warp_end) return;
        use(u0, Tiles::walked(memory, 0, buffer), Tiles::walked(memory, 1, buffer));
      });
}

template <class Math, int kHS, class Real = typename Math::Real>
static __global__ void __launch_bounds__(Math::threads(Math::kForwardRows), flash_blocks(kHS))
    flash_forward_kernel(Real* out, float* lse, const Real* qkv, FlashCall call) {
  using Tiles = ForwardTiles<Math>;
  using Softmax = OnlineSoftmax<Math, kHS>;
  using Scores = typename Softmax::Scores;
  constexpr int kRows = Math::kForwardRows;
  STAGEGPT_DYNAMIC_SHARED(Real, memory);
  const HeadOfBlock head(call.s);
  const int T = static_cast<int>(call.s.T);
  const int first = static_cast<int>(gridDim.y - 1 - blockIdx.y) * kRows;
  const auto q = Tiles::fixed(memory, 0);
  load_tile<kRows, kHS>(q, head.rows(call.s, qkv, call.vectors, 0, 3), first);

  Softmax rows;
  walk_keys<Tiles, Scores, kHS>(memory, qkv, head, call, first, [&](int u0, const auto& k, const auto& v) {
    auto scores = Scores::of_rows(q, k);
    rows.add_keys(scores, call.s.scale * kLog2E, first, u0);
    if (call.dropout.p() > 0) {
      const DropoutFactors<Scores> factors(
          call, head, [&](int i, int) { return first + Scores::row(i); },
          [&](int, int j) { return u0 + Scores::column(j); });
      STAGEGPT_UNROLL for (int i = 0; i < Scores::kThreadRows; ++i) {
        STAGEGPT_UNROLL for (int j = 0; j < Scores::kThreadColumns; ++j) {
          scores.at(i, j) *= factors.at(i, j);
        }
      }
    }
    rows.out.add(scores, v, Tiles::scratch(memory));
  });

  STAGEGPT_UNROLL for (int i = 0; i < Softmax::Out::kThreadRows; ++i) {
    const float l = warp_sum<Softmax::Out::kRowLanes>(rows.sum[i]);
    STAGEGPT_UNROLL for (int j = 0; j < Softmax::Out::kThreadColumns; ++j) rows.out.at(i, j) /= l;
    const int t = first + Softmax::Out::row(i);
    if (t < T && Softmax::Out::column(0) == 0) lse[head.row(call.s, t)] = kLn2 * (rows.max[i] + log2f(l));
  }
  write_product<kHS>(head.rows(call.s, out, call.vectors), false, rows.out, 1, q, first);
}

// Calls run(kHS), with kHS a constant: the smallest of the compiled head sizes that holds HS columns.
template <class Run>
void with_head_size(std::int64_t HS, const Run& run) {
  if (HS <= 32) return run(std::integral_constant<int, 32>());
  if (HS <= 64) return run(std::integral_constant<int, 64>());
  if (HS <= 96) return run(std::integral_constant<int, 96>());
  check(HS <= kFlashHeadSize, "flash attention: heads of ", HS, " channels");
  return run(std::integral_constant<int, 128>());
}

template <class Real, int kHS>
using FlashMath = std::conditional_t<std::is_same_v<Real, float>, Fma<kHS>, TensorCores<kHS>>;

// A grid of blocks for `rows` queries or keys each.
inline dim3 attention_grid(AttentionSize s, int rows) {
  return dim3(static_cast<unsigned>(s.B * s.NH), static_cast<unsigned>(parts(s.T, rows)));
}

// For heads of at most kHS channels.
template <int kHS, class Real>
void flash_forward_heads(StreamHandle stream, Real* out, float* lse, const Real* qkv, const Dropout& dropout,
                         AttentionSize s) {
  using Math = FlashMath<Real, kHS>;
  constexpr int kRows = Math::kForwardRows;
  const FlashCall call{s, DropoutArgument(dropout), in_vectors<kVector<Real>>(s.HS, qkv, out)};
  launch<flash_forward_kernel<Math, kHS>>(attention_grid(s, kRows), dim3(Math::threads(kRows)),
                                          ForwardTiles<Math>::kBytes, stream, out, lse, qkv, call);
}

template <class Real>
void flash_forward(StreamHandle stream, Real* out, float* lse, const Real* qkv, const Dropout& dropout,
                   AttentionSize s) {
  with_head_size(s.HS,
                 [&](auto head_size) { flash_forward_heads<head_size>(stream, out, lse, qkv, dropout, s); });
}

}  // namespace stagegpt::gpu
