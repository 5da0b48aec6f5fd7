// The GEMM with register tiles against sums of small integers, which f32 represents exactly: any error is a
// wrong element.
#include "stage0_serial/kernels/matmul_tiled.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/base/error.h"
#include "stage0_serial/kernels/simd.h"
#include "tests/support/matrix.h"
#include "tests/support/tensors.h"

namespace stagegpt::test {
namespace {

// What a product does with its operands and with c.
struct TiledForm {
  bool a_transposed, b_transposed, accumulate;
};

constexpr int kGap = 3;  // elements between the rows of c

std::string described(MatmulSize s, TiledForm form) {
  return concat("m ", s.m, " n ", s.n, " k ", s.k, form.a_transposed ? " aᵀ" : "",
                form.b_transposed ? " bᵀ" : "", form.accumulate ? " +=" : "");
}

// Expects that multiply(c, a, b) computes the product, and writes nothing between the rows of c.
template <class Multiply>
void expect_product(MatmulSize s, TiledForm form, const Multiply& multiply) {
  Matrix a(s.m, s.k, form.a_transposed, kGap), b(s.k, s.n, form.b_transposed, kGap), c(s.m, s.n, false, kGap);
  a.fill_with_integers(1);
  b.fill_with_integers(2);
  c.fill_with_integers(3);
  std::vector<float> expected = c.values;
  naive::matmul(expected.data(), c.length, a.view, b.view, s, form.accumulate);
  multiply(c, a, b);
  for (std::int64_t i = 0; i < s.m; ++i) {
    for (std::int64_t j = 0; j < c.length; ++j) {
      const auto element = static_cast<std::size_t>(i * c.length + j);
      if (c.values[element] == expected[element]) continue;
      ADD_FAILURE() << described(s, form) << ": c(" << i << ", " << j << ") is " << c.values[element]
                    << ", not " << expected[element] << (j < s.n ? "" : "; it lies behind the row");
      return;
    }
  }
}

// Rows and columns around one register tile, whatever its size on this processor, and above two.
TEST(TiledMatmul, a_product_of_tiles_is_exact_at_their_edges) {
  for (const std::int64_t m : {1, 2, 5, 6, 7, 11, 12, 13, 25}) {
    for (const std::int64_t n : {1, kLanes - 1, kLanes, kLanes + 1, 2 * kLanes, 4 * kLanes + 3}) {
      for (const TiledForm form :
           {TiledForm{false, false, false}, {true, false, false}, {false, false, true}}) {
        const MatmulSize size{m, n, 9};
        expect_product(size, form, [&](Matrix& c, const Matrix& a, const Matrix& b) {
          tile_product(c.values.data(), c.length, a.view, b.values.data(), b.length, size, form.accumulate);
        });
      }
    }
  }
}

// Blocks of 256 steps of k, and of 8 vectors of columns.
TEST(TiledMatmul, is_exact_at_the_edges_of_blocks) {
  for (const std::int64_t k : {1, 255, 256, 257, 600}) {
    for (const std::int64_t n : {3, 8 * kLanes - 1, 8 * kLanes, 8 * kLanes + 1, 20 * kLanes + 5}) {
      for (const TiledForm form : {TiledForm{false, true, false}, {false, false, true}, {true, true, true}}) {
        const MatmulSize size{7, n, k};
        expect_product(size, form, [&](Matrix& c, const Matrix& a, const Matrix& b) {
          tiled::matmul(Parallel(2), c.values.data(), c.length, a.view, b.view, size, form.accumulate);
        });
      }
    }
  }
}

// Real numbers, whose sums are rounded: then the order of additions shows in the bits.
TEST(TiledMatmul, has_the_same_bits_with_any_number_of_threads) {
  for (const MatmulSize s : {MatmulSize{10, 40 * kLanes, 700}, {3, 500, 100}}) {
    const Values a = random_values(1, 0, s.m * s.k), b = random_values(1, 1, s.k * s.n);
    const std::vector<float> left(a.begin(), a.end()), right(b.begin(), b.end());
    const auto product = [&](int threads) {
      std::vector<float> c(static_cast<std::size_t>(s.m * s.n));
      tiled::matmul(Parallel(threads), c.data(), s.n, row_major(left.data(), s.k),
                    row_major(right.data(), s.n), s, false);
      return c;
    };
    const std::vector<float> one = product(1);
    for (const int threads : {2, 3, 5}) EXPECT_EQ(product(threads) == one, true) << threads << " threads";
    double sum = 0;
    for (const float element : one) sum += static_cast<double>(element) * element;
    EXPECT_GT(sum, 0);
  }
}

}  // namespace
}  // namespace stagegpt::test
