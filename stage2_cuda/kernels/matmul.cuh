// GEMM: c[m][n] = scale · Σ_k a[m][k]·b[k][n] + bias[n], or += with `accumulate`, for each matrix of a batch.
// Either operand may be transposed.
//
// Three implementations, selected by --gpu-matmul (the fourth, `cublaslt`, is in gemm.h). Read the naive one
// first: the others compute the same sums with fewer reads from global memory. For (M,K) · (K,N):
//   naive       one thread per element of c: an element of a is read N times, an element of b M times;
//   tiled       one block per 16 × 16 tile of c, operands in shared memory: N/16 and M/16 times;
//   vectorised  one block per 64 × 64 tile of c, 4 × 4 of it per thread, in registers: N/64 and M/64 times.
//               Two reads of four floats from shared memory give 16 products.
// The next steps, in bf16 on tensor cores, are in matmul_mma.cuh.
#pragma once

#include "stage2_cuda/gemm.h"
#include "stage2_cuda/kernels/real.cuh"

namespace stagegpt::gpu {

// Distances in memory between rows, between columns and between the matrices of a batch.
struct Layout {
  std::int64_t row = 0, column = 0, batch = 0;

  explicit Layout(const Matrix& matrix)
      : row(matrix.transposed ? 1 : matrix.ld),
        column(matrix.transposed ? matrix.ld : 1),
        batch(matrix.stride) {}
};

// A Product without its pointers.
struct ProductShape {
  explicit ProductShape(const Product& p)
      : a(p.a),
        b(p.b),
        ldc(p.ldc),
        stride_c(p.stride_c),
        m(p.m),
        n(p.n),
        k(p.k),
        scale(p.scale),
        accumulate(p.accumulate) {}

  Layout a, b;
  std::int64_t ldc, stride_c, m, n, k;
  float scale;
  bool accumulate;
};

// Writes element (m, n) of c, if it exists.
__device__ inline void finish(float* c, float sum, const float* bias, std::int64_t m, std::int64_t n,
                              const ProductShape& s) {
  if (m >= s.m || n >= s.n) return;
  const float value = s.scale * sum + (bias ? bias[n] : 0.0f);
  put(c, m * s.ldc + n, value, s.accumulate);
}

static __global__ void matmul_naive_kernel(float* c, const float* a, const float* b, const float* bias,
                                           ProductShape s) {
  const std::int64_t m = blockIdx.x, n = static_cast<std::int64_t>(blockIdx.y) * blockDim.x + threadIdx.x,
                     batch = blockIdx.z;
  if (n >= s.n) return;
  float sum = 0;
  for (std::int64_t k = 0; k < s.k; ++k) {
    sum += a[batch * s.a.batch + m * s.a.row + k * s.a.column] *
           b[batch * s.b.batch + k * s.b.row + n * s.b.column];
  }
  finish(c + batch * s.stride_c, sum, bias, m, n, s);
}

inline constexpr int kTile = 16;

static __global__ void matmul_tiled_kernel(float* c, const float* a, const float* b, const float* bias,
                                           ProductShape s) {
  // Two rows of a tile fill the 32 banks, and a warp has two rows: no access has a conflict.
  STAGEGPT_SHARED(float, tile_a, kTile* kTile);  // [m][k]
  STAGEGPT_SHARED(float, tile_b, kTile* kTile);  // [k][n]
  const int x = static_cast<int>(threadIdx.x % kTile), y = static_cast<int>(threadIdx.x / kTile);
  const std::int64_t m = static_cast<std::int64_t>(blockIdx.x) * kTile + y,
                     n = static_cast<std::int64_t>(blockIdx.y) * kTile + x, batch = blockIdx.z;
  float sum = 0;
  for (std::int64_t k0 = 0; k0 < s.k; k0 += kTile) {
    const bool a_there = m < s.m && k0 + x < s.k, b_there = k0 + y < s.k && n < s.n;
    tile_a[y * kTile + x] = a_there ? a[batch * s.a.batch + m * s.a.row + (k0 + x) * s.a.column] : 0.0f;
    tile_b[y * kTile + x] = b_there ? b[batch * s.b.batch + (k0 + y) * s.b.row + n * s.b.column] : 0.0f;
    __syncthreads();
    for (int k = 0; k < kTile; ++k) sum += tile_a[y * kTile + k] * tile_b[k * kTile + x];
    __syncthreads();
  }
  finish(c + batch * s.stride_c, sum, bias, m, n, s);
}

// The vectorised version's tile of c, its depth in k, and the row stride of its tiles in shared memory: a
// multiple of 4 for load4, but not of 32, to avoid bank conflicts.
inline constexpr int kBlockTile = 64, kDepth = 16, kTileStride = kBlockTile + 4;

// tile[k][i] = element (i0 + i, k0 + k) of an operand whose rows are `row` and whose columns are `column`
// elements apart; zero outside its `rows` and `columns`. Reads are coalesced.
template <class Shared>
__device__ void load_tile(Shared& tile, const float* factor, std::int64_t row, std::int64_t column,
                          std::int64_t i0, std::int64_t k0, std::int64_t rows, std::int64_t columns) {
  for (int e = static_cast<int>(threadIdx.x); e < kBlockTile * kDepth; e += kThreads) {
    const int i = row == 1 ? e % kBlockTile : e / kDepth, k = row == 1 ? e / kBlockTile : e % kDepth;
    const bool there = i0 + i < rows && k0 + k < columns;
    tile[k * kTileStride + i] = there ? factor[(i0 + i) * row + (k0 + k) * column] : 0.0f;
  }
}

static __global__ void matmul_vectorised_kernel(float* c, const float* a, const float* b, const float* bias,
                                                ProductShape s) {
  STAGEGPT_SHARED(float, tile_a, kDepth* kTileStride);  // [k][m]
  STAGEGPT_SHARED(float, tile_b, kDepth* kTileStride);  // [k][n]
  const int x = static_cast<int>(threadIdx.x % 16) * 4, y = static_cast<int>(threadIdx.x / 16) * 4;
  const std::int64_t m0 = static_cast<std::int64_t>(blockIdx.x) * kBlockTile,
                     n0 = static_cast<std::int64_t>(blockIdx.y) * kBlockTile, batch = blockIdx.z;
  float sums[4][4] = {};
  for (std::int64_t k0 = 0; k0 < s.k; k0 += kDepth) {
    load_tile(tile_a, a + batch * s.a.batch, s.a.row, s.a.column, m0, k0, s.m, s.k);
    load_tile(tile_b, b + batch * s.b.batch, s.b.column, s.b.row, n0, k0, s.n, s.k);
    __syncthreads();
    for (int k = 0; k < kDepth; ++k) {
      const Float4 u = load4(tile_a, k * kTileStride + y), v = load4(tile_b, k * kTileStride + x);
      const float left[4] = {u.x, u.y, u.z, u.w}, right[4] = {v.x, v.y, v.z, v.w};
      for (int i = 0; i < 4; ++i) {
        for (int j = 0; j < 4; ++j) sums[i][j] += left[i] * right[j];
      }
    }
    __syncthreads();
  }
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) finish(c + batch * s.stride_c, sums[i][j], bias, m0 + y + i, n0 + x + j, s);
  }
}

// Launches one block per `rows` × `columns` tile of c. Rows are along x, which allows the most blocks.
template <auto kernel>
void launch_product(StreamHandle stream, const Product& p, int threads, std::int64_t rows,
                    std::int64_t columns) {
  if (p.m == 0 || p.n == 0 || p.batch == 0) return;
  const dim3 grid(static_cast<unsigned>(parts(p.m, rows)), static_cast<unsigned>(parts(p.n, columns)),
                  static_cast<unsigned>(p.batch));
  launch<kernel>(grid, dim3(static_cast<unsigned>(threads)), 0, stream, p.c, p.a.data, p.b.data, p.bias,
                 ProductShape(p));
}

inline void matmul_naive(StreamHandle stream, const Product& p) {
  launch_product<matmul_naive_kernel>(stream, p, kThreads, 1, kThreads);
}
inline void matmul_tiled(StreamHandle stream, const Product& p) {
  launch_product<matmul_tiled_kernel>(stream, p, kTile * kTile, kTile, kTile);
}
inline void matmul_vectorised(StreamHandle stream, const Product& p) {
  launch_product<matmul_vectorised_kernel>(stream, p, kThreads, kBlockTile, kBlockTile);
}

}  // namespace stagegpt::gpu
