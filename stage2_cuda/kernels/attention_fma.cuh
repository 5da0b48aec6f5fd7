// Products of tiles in f32, one multiplication at a time.
//
// In a product, 16 threads compute four rows; thread x of them has the columns x, x + 16, and so on. So a row
// is reduced by shuffles among 16 lanes.
#pragma once

#include "stage2_cuda/kernels/attention_tiles.cuh"

namespace stagegpt::gpu {

template <int kHS, bool kWithDropout>
struct Fma {
  using Real = float;
  static constexpr int kHeadSize = kHS, kStride = kHS + 4;
  static constexpr bool kDropout = kWithDropout;
  static constexpr int kGroup = 16;  // threads that share rows
  static constexpr int kBlocks = kHS <= 64 && !kDropout ? 2 : 1;
  static constexpr FlashShape forward() { return {.rows = 64, .step = 32, .chunk = 32, .blocks = kBlocks}; }
  static constexpr FlashShape queries() { return {.rows = 32, .step = 32, .chunk = 32, .blocks = kBlocks}; }
  static constexpr FlashShape keys() { return queries(); }
  static constexpr int kScratchColumns = 32 + 4;  // per row of a block: scores, with padding

  // The differences come before the factors, so that large scores keep the accuracy of f32.
  static constexpr float kLseUnit = 1;
  __device__ static float power(float product, float scale, float max) {
    return exp2_approx(scale * kLog2E * (product - max));
  }
  __device__ static float probability(float product, float scale, float lse) {
    return exp2_approx(kLog2E * (scale * product - lse));
  }

  static constexpr int threads(int rows) { return rows / 4 * kGroup; }

  // The left operand of a product of rows: a tile.
  template <FlashShape, class Tile>
  struct Left {
    Tile tile;
    __device__ explicit Left(const Tile& rows) : tile(rows) {}
    __device__ void load() {}
  };

  template <int kRows, int kColumns>
  struct Product {
    static constexpr int kThreadRows = 4, kThreadColumns = kColumns / kGroup;
    static constexpr int kRowLanes = kGroup;
    static constexpr int kWarpRows = kWarp / kGroup * kThreadRows;

    float v[kThreadRows][kThreadColumns] = {};

    __device__ float& at(int i, int j) { return v[i][j]; }
    __device__ float at(int i, int j) const { return v[i][j]; }
    // The row and column of at(i, j), and the first row of this thread's warp.
    __device__ static int row(int i) { return static_cast<int>(threadIdx.x) / kGroup * kThreadRows + i; }
    __device__ static int column(int j) { return static_cast<int>(threadIdx.x) % kGroup + kGroup * j; }
    __device__ static int first_row() { return static_cast<int>(threadIdx.x) / kWarp * kWarpRows; }

    // a · bᵀ, both with kHS columns.
    template <class Rows, class Tile>
    __device__ static Product of_rows(const Rows& a, const Tile& b) {
      Product product;
      for (int c = 0; c < kHS; c += 4) {
        Float4 right[kThreadColumns];
        for (int j = 0; j < kThreadColumns; ++j) right[j] = load4(b.memory, b.at(column(j), c));
        for (int i = 0; i < kThreadRows; ++i) {
          const Float4 left = load4(a.tile.memory, a.tile.at(row(i), c));
          for (int j = 0; j < kThreadColumns; ++j) {
            product.v[i][j] += left.x * right[j].x;
            product.v[i][j] += left.y * right[j].y;
            product.v[i][j] += left.z * right[j].z;
            product.v[i][j] += left.w * right[j].w;
          }
        }
      }
      return product;
    }

    // Adds p · b, where b has a row for each column of p. The warp writes its rows of p to `scratch`.
    template <int kTerms, class Tile, class Scratch>
    __device__ void add(const Product<kRows, kTerms>& p, const Tile& b, const Scratch& scratch) {
      __syncwarp();  // the warp has finished with what it wrote before
      for (int i = 0; i < kThreadRows; ++i) {
        for (int j = 0; j < p.kThreadColumns; ++j) scratch.memory[scratch.at(row(i), column(j))] = p.v[i][j];
      }
      __syncwarp();
      for (int k0 = 0; k0 < kTerms; k0 += 4) {
        float left[kThreadRows][4];
        for (int i = 0; i < kThreadRows; ++i) {
          const Float4 four = load4(scratch.memory, scratch.at(row(i), k0));
          left[i][0] = four.x, left[i][1] = four.y, left[i][2] = four.z, left[i][3] = four.w;
        }
        for (int k = 0; k < 4; ++k) {
          for (int j = 0; j < kThreadColumns; ++j) {
            const float right = b.memory[b.at(k0 + k, column(j))];
            for (int i = 0; i < kThreadRows; ++i) v[i][j] += left[i][k] * right;
          }
        }
      }
    }
  };
};

}  // namespace stagegpt::gpu
