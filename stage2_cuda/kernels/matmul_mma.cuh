// GEMM in bf16 on tensor cores: c[m][n] = Σ_k a[m][k]·b[k][n] + bias[n], with sums in f32 that are rounded
// once, when c is written. a (M,K), b (K,N) and c (M,N) are row-major and without padding, N and K are
// multiples of eight: copies are of 16 bytes.
//
// The steps after matmul.cuh's three versions in f32. A block computes an R × C tile of c. It walks over k,
// kDepth columns of a and rows of b at a time, which it copies to shared memory. Each of its warps computes
// an r × c part of the tile, by mma.sync.m16n8k16; its sums stay in registers. A product of R × C sums over
// one k takes 2·R·C FLOP, and reads R + C elements of two bytes. So a FLOP costs 1/R + 1/C bytes of global
// memory and, as each warp reads its own operands, 1/r + 1/c bytes of shared memory.
//
//                     R × C      r × c    global   shared   what is new
//   v4 tensor cores   64 × 64    32 × 32  1/32     1/16     4096 FLOP per instruction of a warp, not 64
//   v5 larger tiles   128 × 128  64 × 32  1/64     3/64     half the bytes of global memory
//   v6 two buffers    128 × 128  64 × 32  1/64     3/64     the next tiles are copied while these are used
//
// (The vectorised version in f32 has 64 × 64 tiles: 4·(1/64 + 1/64)/2 = 1/16 bytes of global memory; a
// thread's part is 4 × 4: 4·(1/4 + 1/4)/2 = 1 byte of shared memory.)
//
// ldmatrix reads eight rows of 16 bytes at a time. Rows in shared memory have eight elements more than the
// tile, so that these eight rows lie in different banks.
#pragma once

#include "stage2_cuda/gemm.h"
#include "stage2_cuda/kernels/tiles.cuh"

namespace stagegpt::gpu {

inline constexpr int kMmaDepth = 64;  // of a tile, in k

template <int kBlockRows, int kBlockColumns, int kWarpRows, int kWarpColumns, int kBuffers>
struct MmaSizes {
  static constexpr int R = kBlockRows, C = kBlockColumns, r = kWarpRows, c = kWarpColumns;
  static constexpr int buffers = kBuffers;
  static constexpr int warps_per_row = C / c, threads = R / r * warps_per_row * kWarp;
  static constexpr int stride_a = kMmaDepth + 8, stride_b = C + 8;
  static constexpr int tile_a = R * stride_a, tiles = tile_a + kMmaDepth * stride_b;  // elements
  static constexpr std::size_t bytes = buffers * tiles * sizeof(Bf16);
};
using MmaTensorCores = MmaSizes<64, 64, 32, 32, 1>;
using MmaLargerTiles = MmaSizes<128, 128, 64, 32, 1>;
using MmaTwoBuffers = MmaSizes<128, 128, 64, 32, 2>;

// Starts to copy the part of a matrix (rows,columns) that begins at (row, column); zeros beyond the matrix.
// The loop is not unrolled: the addresses of all copies would take registers from the block's sums.
template <int kRows, int kColumns, class Shared>
__device__ void copy_part(const Tile<Shared>& tile, const Bf16* matrix, std::int64_t rows,
                          std::int64_t columns, std::int64_t row, std::int64_t column) {
  for (int e = 8 * static_cast<int>(threadIdx.x); e < kRows * kColumns;
       e += 8 * static_cast<int>(blockDim.x)) {
    const int i = e / kColumns, j = e % kColumns;
    const bool exists = row + i < rows && column + j < columns;
    cp_async_16(tile.memory, tile.at(i, j), exists ? matrix + (row + i) * columns + column + j : matrix,
                exists);
  }
}

// The sums of a warp: its r × c part of a tile of c, which begins at (row, column) of the tile.
template <class Sizes>
struct WarpSums {
  FragmentC part[Sizes::r / 16][Sizes::c / 8] = {};

  // Adds the product of a tile of a and a tile of b.
  template <class Shared>
  __device__ void add(const Tile<Shared>& a, const Tile<Shared>& b, int row, int column) {
    const int lane = lane_index();
    STAGEGPT_UNROLL for (int k = 0; k < kMmaDepth; k += 16) {
      FragmentA left[Sizes::r / 16];
      STAGEGPT_UNROLL for (int i = 0; i < Sizes::r / 16; ++i) {
        left[i] = ldmatrix_x4(a.memory, a.at(row + 16 * i + lane % 16, k + lane / 16 * 8));
      }
      STAGEGPT_UNROLL for (int j = 0; j < Sizes::c / 8; j += 2) {
        const FragmentA right =  // two operands of eight columns
            ldmatrix_x4_trans(b.memory, b.at(k + lane % 16, column + 8 * j + lane / 16 * 8));
        STAGEGPT_UNROLL for (int i = 0; i < Sizes::r / 16; ++i) {
          mma_m16n8k16(part[i][j], left[i], {right.pair[0], right.pair[1]});
          mma_m16n8k16(part[i][j + 1], left[i], {right.pair[2], right.pair[3]});
        }
      }
    }
  }
};

// c has pairs of neighbouring columns. Two blocks share an SM, so that one can compute while the other waits.
template <class Sizes>
static __global__ void __launch_bounds__(Sizes::threads, 2)
    matmul_mma_kernel(Bf16Pair* c, const Bf16* a, const Bf16* b, const Bf16* bias, std::int64_t M,
                      std::int64_t N, std::int64_t K) {
  STAGEGPT_DYNAMIC_SHARED(Bf16, memory);  // of each buffer: a tile of a, [m][k], and one of b, [k][n]
  const auto tile_a = [&](int buffer) { return Tile{memory, buffer * Sizes::tiles, Sizes::stride_a}; };
  const auto tile_b = [&](int buffer) {
    return Tile{memory, buffer * Sizes::tiles + Sizes::tile_a, Sizes::stride_b};
  };
  const std::int64_t m0 = static_cast<std::int64_t>(blockIdx.x) * Sizes::R,
                     n0 = static_cast<std::int64_t>(blockIdx.y) * Sizes::C;
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = lane_index();
  const int row = warp / Sizes::warps_per_row * Sizes::r, column = warp % Sizes::warps_per_row * Sizes::c;

  WarpSums<Sizes> sums;
  walk_tiles<Sizes::buffers>(
      0, static_cast<int>(K), kMmaDepth,
      [&](int k0, int buffer) {
        copy_part<Sizes::R, kMmaDepth>(tile_a(buffer), a, M, K, m0, k0);
        copy_part<kMmaDepth, Sizes::C>(tile_b(buffer), b, K, N, k0, n0);
      },
      [&](int, int buffer) { sums.add(tile_a(buffer), tile_b(buffer), row, column); });

  STAGEGPT_UNROLL for (int i = 0; i < Sizes::r / 16; ++i) {
    STAGEGPT_UNROLL for (int j = 0; j < Sizes::c / 8; ++j) {
      STAGEGPT_UNROLL for (int half = 0; half < 2; ++half) {
        const std::int64_t m = m0 + row + 16 * i + 8 * half + lane / 4,
                           n = n0 + column + 8 * j + lane % 4 * 2;
        if (m >= M || n >= N) continue;
        const FragmentC& sum = sums.part[i][j];
        c[(m * N + n) / 2] =
            rounded_pair(sum.v[2 * half] + as_float(bias[n]), sum.v[2 * half + 1] + as_float(bias[n + 1]));
      }
    }
  }
}

template <class Sizes>
void matmul_mma(StreamHandle stream, const ProductOf<Bf16, Bf16>& p) {
  check(p.ldc == p.n && p.a.ld == p.k && p.b.ld == p.n && !p.a.transposed && !p.b.transposed &&
            p.batch == 1 && p.scale == 1 && !p.accumulate && p.bias && p.epilogue == Epilogue::none,
        "matmul_mma: only c = a · b + bias, without padding");
  check(p.n % 8 == 0 && p.k % 8 == 0, "matmul_mma: K = ", p.k, ", N = ", p.n, ", not multiples of 8");
  const dim3 grid(static_cast<unsigned>(parts(p.m, Sizes::R)), static_cast<unsigned>(parts(p.n, Sizes::C)));
  launch<matmul_mma_kernel<Sizes>>(grid, dim3(Sizes::threads), Sizes::bytes, stream,
                                   reinterpret_cast<Bf16Pair*>(p.c), p.a.data, p.b.data, p.bias, p.m, p.n,
                                   p.k);
}

}  // namespace stagegpt::gpu
