// Products of tiles on tensor cores, with f32 sums: in bf16, or in f32 whose factors are rounded to TF32. A
// warp computes 16 or 32 rows of a product, all columns. warp_matrix.h says which elements a lane has.
//
// A product is the left operand of the next one without passing through shared memory. In bf16, two
// accumulators of 16×8, rounded, are one operand of 16×16. In TF32 one accumulator is one operand of 16×8, if
// its columns are counted in another order, and the rows of the right operand too: 2t as t, 2t + 1 as t + 4.
#pragma once

#include "stage2_cuda/kernels/attention_tiles.cuh"

namespace stagegpt::gpu {

template <class Element, int kHS, bool kWithDropout>
struct TensorCores {
  using Real = Element;
  static constexpr int kHeadSize = kHS, kStride = kHS;
  static constexpr bool kDropout = kWithDropout;
  static constexpr bool kTf32 = std::is_same_v<Real, float>;
  static constexpr int kWarps = 4, kThreads = kWarps * kWarp;
  // Terms of one instruction: two chunks of 16 bytes of a row.
  static constexpr int kDepth = 2 * kVector<Real>;

  // 32 rows per warp, as a right operand is then loaded once for two products; 16 where more have no place in
  // registers or shared memory.
  static constexpr bool kWide = kHS > 64, kNarrow = kWide || (kTf32 && kDropout);
  static constexpr FlashShape forward() {
    const int rows = kNarrow ? 64 : 128;
    if (kTf32) return {.rows = rows, .step = kWide ? 32 : 64, .chunk = 32, .blocks = 2};
    return {.rows = rows, .step = 64, .chunk = kDropout ? 32 : 64, .blocks = 2, .kept = !kDropout};
  }
  static constexpr FlashShape queries() {
    const int step = kWide ? 16 : 32;
    if (kTf32) return {.rows = kNarrow ? 64 : 128, .step = step, .chunk = step, .blocks = 2};
    return {.rows = 64, .step = 64, .chunk = 32, .blocks = kWide || kDropout ? 2 : 3, .kept = !kWide};
  }
  static constexpr FlashShape keys() {
    if (kTf32) return {.rows = kNarrow ? 64 : 128, .step = kWide ? 16 : 32, .chunk = 16, .blocks = 2};
    return {.rows = 64, .step = 64, .chunk = kWide ? 16 : 32, .blocks = kWide ? 1 : kDropout ? 2 : 3};
  }
  static constexpr int kScratchColumns = 0;

  // 2^(log2 e·scale·(product - max)), and exp(scale·product - lse): a multiply-add each. `lse` is in units
  // of kLseUnit.
  static constexpr float kLseUnit = kLn2;
  __device__ static float power(float product, float scale, float max) {
    const float c = scale * kLog2E;
    return exp2_approx(c * product - c * max);
  }
  __device__ static float probability(float product, float scale, float lse) {
    return exp2_approx(scale * kLog2E * product - lse);
  }

  static constexpr int threads(int) { return kThreads; }

  __device__ static void multiply_add(FragmentC& c, const FragmentA& left, const FragmentB& right) {
    if constexpr (kTf32) {
      mma_m16n8k8(c, left, right);
    } else {
      mma_m16n8k16(c, left, right);
    }
  }

  // Four words of a tile; in TF32 they are rounded, as tiles hold f32.
  template <class Tile>
  __device__ static FragmentA load_words(const Tile& tile, int row, int column) {
    FragmentA words = ldmatrix_x4(tile.memory, tile.at(row, column));
    if constexpr (kTf32) {
      STAGEGPT_UNROLL for (std::uint32_t& word : words.pair) word = rounded_tf32(__uint_as_float(word));
    }
    return words;
  }

  // The left operand of a product of rows: those of a tile.
  template <FlashShape kShape, class Tile>
  class Left {
   public:
    __device__ explicit Left(const Tile& tile) : tile_(tile) {}
    // Called when the tile has arrived.
    __device__ void load() {
      if constexpr (kShape.kept) {
        STAGEGPT_UNROLL for (int m = 0; m < kMatrices; ++m) {
          STAGEGPT_UNROLL for (int k = 0; k < kParts; ++k) words_[m * kParts + k] = from_tile(m, k);
        }
      }
    }
    // Rows of matrix m, columns kDepth·k, kDepth·k + 1, ….
    __device__ FragmentA operand(int m, int k) const {
      if constexpr (kShape.kept) {
        return words_[m * kParts + k];
      } else {
        return from_tile(m, k);
      }
    }

   private:
    static constexpr int kMatrices = kShape.rows / 16 / kWarps, kParts = kHS / kDepth;

    __device__ FragmentA from_tile(int m, int k) const {
      const int lane = lane_index(), row = static_cast<int>(threadIdx.x) / kWarp * 16 * kMatrices + 16 * m;
      return load_words(tile_, row + lane % 16, k * kDepth + lane / 16 * kVector<Real>);
    }

    Tile tile_;
    FragmentA words_[kShape.kept ? kMatrices * kParts : 1];
  };

  template <int kRows, int kColumns>
  struct Product {
    static constexpr int kMatrices = kRows / 16 / kWarps;  // of 16 rows
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
    template <class Rows, class Tile>
    __device__ static Product of_rows(const Rows& a, const Tile& b) {
      const int lane = lane_index();
      Product product;
      STAGEGPT_UNROLL for (int k = 0; k < kHS / kDepth; ++k) {
        FragmentA left[kMatrices];
        STAGEGPT_UNROLL for (int m = 0; m < kMatrices; ++m) left[m] = a.operand(m, k);
        STAGEGPT_UNROLL for (int n = 0; n < kColumns; n += 16) {
          product.multiply(
              left, load_words(b, n + lane / 16 * 8 + lane % 8, k * kDepth + lane / 8 % 2 * kVector<Real>),
              n);
        }
      }
      return product;
    }

    // Adds p · b, where b has a row for each column of p.
    template <int kTerms, class Tile, class Scratch>
    __device__ void add(const Product<kRows, kTerms>& p, const Tile& b, const Scratch&) {
      STAGEGPT_UNROLL for (int k = 0; k < kTerms; k += kDepth) {
        FragmentA left[kMatrices];
        STAGEGPT_UNROLL for (int m = 0; m < kMatrices; ++m) left[m] = operand(&p.c[m][k / 8]);
        STAGEGPT_UNROLL for (int n = 0; n < kColumns; n += 16) multiply(left, right_operands(b, k, n), n);
      }
    }

   private:
    // Columns n to n + 15 += left · right. `right` has two operands of eight columns.
    __device__ void multiply(const FragmentA (&left)[kMatrices], const FragmentA& right, int n) {
      STAGEGPT_UNROLL for (int m = 0; m < kMatrices; ++m) {
        multiply_add(c[m][n / 8], left[m], {right.pair[0], right.pair[1]});
        multiply_add(c[m][n / 8 + 1], left[m], {right.pair[2], right.pair[3]});
      }
    }

    // Accumulators as a left operand: two in bf16, one in TF32.
    __device__ static FragmentA operand(const FragmentC* sums) {
      if constexpr (kTf32) {
        const float(&v)[4] = sums[0].v;
        return {rounded_tf32(v[0]), rounded_tf32(v[2]), rounded_tf32(v[1]), rounded_tf32(v[3])};
      } else {
        const float(&v)[4] = sums[0].v, (&w)[4] = sums[1].v;
        return {rounded_pair(v[0], v[1]), rounded_pair(v[2], v[3]), rounded_pair(w[0], w[1]),
                rounded_pair(w[2], w[3])};
      }
    }

    // Rows k, k + 1, … of a tile as two right operands: of columns n to n + 7, and of n + 8 to n + 15.
    template <class Tile>
    __device__ static FragmentA right_operands(const Tile& b, int k, int n) {
      const int lane = lane_index();
      if constexpr (kTf32) {
        const auto word = [&](int row, int column) {
          return rounded_tf32(b.memory[b.at(k + lane % 4 * 2 + row, n + lane / 4 + column)]);
        };
        return {word(0, 0), word(1, 0), word(0, 8), word(1, 8)};
      } else {
        return ldmatrix_x4_trans(b.memory, b.at(k + lane % 16, n + lane / 16 * 8));
      }
    }
  };
};

}  // namespace stagegpt::gpu
