// Products of tiles in bf16 on tensor cores, with f32 sums: mma.sync.m16n8k16, whose operands are loaded with
// ldmatrix. warp_matrix.h says which elements a lane has.
//
// A warp computes 16 or 32 rows of a product, all columns. A product is the left operand of the next one
// without passing through shared memory: two accumulators of 16×8, rounded to bf16, are one operand of 16×16.
#pragma once

#include "stage2_cuda/kernels/attention_tiles.cuh"

namespace stagegpt::gpu {

template <int kHS>
struct TensorCores {
  using Real = Bf16;
  static constexpr int kWarps = 4;
  // Matrices of 16 rows per warp. With two, a right operand is loaded once for both; larger heads have no
  // registers for that.
  static constexpr int kMatrices = kHS <= 64 ? 2 : 1;
  static constexpr int kForwardRows = 16 * kMatrices * kWarps, kBackwardRows = kForwardRows;
  // Of a tile that is walked over: as many as there are registers for.
  static constexpr int kForwardColumns = 64, kQueriesColumns = 32, kKeysColumns = kHS == 64 ? 16 : 32;
  static constexpr int kStride = kHS + 8;
  static constexpr int kScratchColumns = 0;

  static constexpr int threads(int) { return kWarps * kWarp; }

  template <int kColumns>
  struct Product {
    static constexpr int kThreadRows = 2 * kMatrices, kThreadColumns = kColumns / 4;
    static constexpr int kRowLanes = 4;
    static constexpr int kWarpRows = 16 * kMatrices;

    FragmentC c[kMatrices][kColumns / 8] = {};

    __device__ float& at(int i, int j) { return c[i / 2][j / 2].v[i % 2 * 2 + j % 2]; }
    __device__ float at(int i, int j) const { return c[i / 2][j / 2].v[i % 2 * 2 + j % 2]; }
    // The row and column of at(i, j), and the first row of this thread's warp.
    __device__ static int row(int i) { return first_row() + 8 * i + lane_index() / 4; }
    __device__ static int column(int j) { return j / 2 * 8 + lane_index() % 4 * 2 + j % 2; }
    __device__ static int first_row() { return static_cast<int>(threadIdx.x) / kWarp * kWarpRows; }

    // a · bᵀ, both with kHS columns. Rows of b are columns of the right operand.
    template <class Shared>
    __device__ static Product of_rows(const Tile<Shared>& a, const Tile<Shared>& b) {
      const int lane = lane_index();
      Product product;
      STAGEGPT_UNROLL for (int k = 0; k < kHS; k += 16) {
        FragmentA left[kMatrices];
        STAGEGPT_UNROLL for (int m = 0; m < kMatrices; ++m) {
          left[m] = ldmatrix_x4(a.memory, a.at(first_row() + 16 * m + lane % 16, k + lane / 16 * 8));
        }
        STAGEGPT_UNROLL for (int n = 0; n < kColumns; n += 16) {
          product.multiply(
              left, ldmatrix_x4(b.memory, b.at(n + lane / 16 * 8 + lane % 8, k + lane / 8 % 2 * 8)), n);
        }
      }
      return product;
    }

    // Adds p · b, where b has a row for each column of p.
    template <int kTerms, class Shared>
    __device__ void add(const Product<kTerms>& p, const Tile<Shared>& b, const Tile<Shared>&) {
      const int lane = lane_index();
      STAGEGPT_UNROLL for (int k = 0; k < kTerms; k += 16) {
        FragmentA left[kMatrices];
        STAGEGPT_UNROLL for (int m = 0; m < kMatrices; ++m) left[m] =
            operand(p.c[m][k / 8], p.c[m][k / 8 + 1]);
        STAGEGPT_UNROLL for (int n = 0; n < kColumns; n += 16) {
          multiply(left, ldmatrix_x4_trans(b.memory, b.at(k + lane % 16, n + lane / 16 * 8)), n);
        }
      }
    }

   private:
    // Columns n to n + 15 += left · right. `right` has two operands of eight columns.
    __device__ void multiply(const FragmentA (&left)[kMatrices], const FragmentA& right, int n) {
      STAGEGPT_UNROLL for (int m = 0; m < kMatrices; ++m) {
        mma_m16n8k16(c[m][n / 8], left[m], {right.pair[0], right.pair[1]});
        mma_m16n8k16(c[m][n / 8 + 1], left[m], {right.pair[2], right.pair[3]});
      }
    }

    __device__ static FragmentA operand(const FragmentC& first, const FragmentC& second) {
      return {rounded_pair(first.v[0], first.v[1]), rounded_pair(first.v[2], first.v[3]),
              rounded_pair(second.v[0], second.v[1]), rounded_pair(second.v[2], second.v[3])};
    }
  };
};

}  // namespace stagegpt::gpu
