// The packed GEMM against sums of small integers, which f32 represents exactly: any error is a wrong element.
#include "stage0_serial/kernels/matmul_packed.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "common/tensor/half_floats.h"
#include "stage0_serial/kernels/matmul.h"
#include "tests/support/matrix.h"
#include "tests/support/tensors.h"

namespace stagegpt::test {
namespace {

// All that this processor can run.
std::vector<const PackedKernels*> kernels_here() {
  std::vector<const PackedKernels*> found;
  for (const PackedKernels* kernels : all_packed_kernels()) {
    if (kernels->can_run()) found.push_back(kernels);
  }
  return found;
}

struct Form {
  bool a_transposed, b_transposed, accumulate;
  int gap;
};

std::string name_of(const PackedKernels& kernels, MatmulSize s, Form form) {
  std::ostringstream name;
  name << kernels.name << " m " << s.m << " n " << s.n << " k " << s.k << (form.a_transposed ? " aᵀ" : "")
       << (form.b_transposed ? " bᵀ" : "") << (form.accumulate ? " +=" : "") << " gap " << form.gap;
  return name.str();
}

// Returns the number of wrong elements, those between the rows of c included.
std::int64_t wrong_elements(const PackedKernels& kernels, int threads, MatmulSize s, Form form) {
  Matrix a(s.m, s.k, form.a_transposed, form.gap), b(s.k, s.n, form.b_transposed, form.gap),
      c(s.m, s.n, false, form.gap);
  a.fill_with_integers(1);
  b.fill_with_integers(2);
  c.fill_with_integers(3);
  std::vector<float> expected = c.values;
  naive::matmul(expected.data(), c.length, a.view, b.view, s, form.accumulate);
  packed::matmul(kernels, Parallel(threads), c.values.data(), c.length, a.view, b.view, s, form.accumulate);
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) wrong += c.values[i] != expected[i];
  return wrong;
}

void expect_right(const PackedKernels& kernels, MatmulSize size) {
  for (const Form form : {Form{false, true, false, 0},
                          {false, false, true, 3},
                          {true, false, true, 0},
                          {true, true, false, 5}}) {
    EXPECT_EQ(wrong_elements(kernels, 2, size, form), 0) << name_of(kernels, size, form);
  }
}

TEST(PackedMatmul, is_exact_at_the_edges_of_tiles) {
  for (const PackedKernels* kernels : kernels_here()) {
    const std::int64_t R = kernels->rows, C = kernels->columns;
    for (const std::int64_t m : {std::int64_t{1}, R - 1, R, R + 1, 2 * R + 3}) {
      for (std::int64_t n = 1; n <= 2 * C + 1; n += n < C ? 1 : 5) expect_right(*kernels, {m, n, 7});
    }
  }
}

TEST(PackedMatmul, is_exact_at_the_edges_of_blocks) {
  for (const PackedKernels* kernels : kernels_here()) {
    for (const std::int64_t k :
         {std::int64_t{1}, kernels->depth - 1, kernels->depth, kernels->depth + 1, 3 * kernels->depth + 5}) {
      expect_right(*kernels, {kernels->rows + 2, kernels->columns + 3, k});
    }
    for (const std::int64_t m : {1023, 1024, 1025, 2077}) {  // rows that are packed together: at most 1024
      expect_right(*kernels, {m, 5, 11});
      expect_right(*kernels, {5, m, 11});
    }
  }
}

// ---- Factors in bf16 ----

std::vector<Bf16> halves_of(const std::vector<float>& floats) {
  std::vector<Bf16> halves;
  for (const float value : floats) halves.push_back({bf16_of_float(value)});
  return halves;
}
std::vector<float> floats_of(const std::vector<Bf16>& halves) {
  std::vector<float> floats;
  for (const Bf16 half : halves) floats.push_back(as_float(half));
  return floats;
}

// A matrix of small integers, in f32 and in bf16.
struct BothMatrices : Matrix {
  BothMatrices(std::int64_t rows, std::int64_t columns, bool transposed, int gap, std::uint32_t seed)
      : Matrix(rows, columns, transposed, gap) {
    fill_with_integers(seed);
    halves = halves_of(values);
    half_view = {halves.data(), view.row_stride, view.column_stride};
  }
  std::vector<Bf16> halves;
  MatrixView<Bf16> half_view;
};

// Wrong elements of a product of bf16 factors: in f32, and rounded to bf16 (then c has no gaps).
std::int64_t wrong_halves(const PackedKernels& kernels, int threads, MatmulSize s, Form form) {
  const BothMatrices a(s.m, s.k, form.a_transposed, form.gap, 1), b(s.k, s.n, form.b_transposed, form.gap, 2);
  Matrix c(s.m, s.n, false, form.gap);
  c.fill_with_integers(3);
  std::vector<float> expected = c.values;
  naive::matmul(expected.data(), c.length, a.view, b.view, s, form.accumulate);
  packed::matmul(kernels, Parallel(threads), c.values.data(), c.length, a.half_view, b.half_view, s,
                 form.accumulate);
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) wrong += c.values[i] != expected[i];

  BothMatrices rounded(s.m, s.n, false, 0, 3);
  expected = rounded.values;
  naive::matmul(expected.data(), s.n, a.view, b.view, s, form.accumulate);
  packed::matmul(kernels, Parallel(threads), rounded.halves.data(), a.half_view, b.half_view, s,
                 {.accumulate = form.accumulate});
  for (std::size_t i = 0; i < expected.size(); ++i)
    wrong += rounded.halves[i].bits != bf16_of_float(expected[i]);
  return wrong;
}

TEST(PackedMatmul, of_halves_is_exact_at_the_edges_of_tiles_and_blocks) {
  for (const PackedKernels* kernels : kernels_here()) {
    const std::int64_t R = kernels->rows, C = kernels->columns, D = kernels->depth;
    for (const MatmulSize size : {MatmulSize{1, 1, 1},
                                  {R - 1, C - 1, 7},
                                  {R + 1, C + 1, 8},
                                  {2 * R + 3, 5, D},
                                  {R + 2, 3 * C + 3, D + 1},
                                  {5, C, 3 * D + 5},
                                  {1025, 9, 3},
                                  {3, 5, 0}}) {
      for (const Form form : {Form{false, true, false, 0}, {false, false, true, 3}, {true, false, true, 1}}) {
        EXPECT_EQ(wrong_halves(*kernels, 2, size, form), 0) << name_of(*kernels, size, form);
      }
    }
  }
}

// More columns than those whose sums are kept at a time, in two blocks of depth.
TEST(PackedMatmul, of_halves_is_exact_with_many_columns) {
  const PackedKernels& kernels = packed_kernels(Factors::bf16);
  EXPECT_EQ(wrong_halves(kernels, 1, {9, 3100, kernels.depth + 9}, {false, true, true, 0}), 0);
}

// relu, because with integers nothing is rounded but the result: sums of up to ±64 are exact in bf16.
TEST(PackedMatmul, finishes_sums_before_it_rounds_them) {
  using packed::Finish;
  for (const PackedKernels* kernels : kernels_here()) {
    for (const MatmulSize s : {MatmulSize{kernels->rows + 1, 2 * kernels->columns + 3, 4},
                               {3, kernels->columns + 1, 2 * kernels->depth + 1}}) {
      BothMatrices a(s.m, s.k, false, 0, 1), b(s.k, s.n, false, 0, 2), c(s.m, s.n, false, 0, 3),
          pre(s.m, s.n, false, 0, 4), bias(1, s.n, false, 0, 5);
      for (std::size_t i = 0; i < a.values.size(); ++i) {
        if (static_cast<std::int64_t>(i) % s.k < 4) continue;  // short sums, so that they are exact
        a.values[i] = 0, a.halves[i] = {};
      }
      std::vector<float> sums(c.values.size());
      naive::matmul(sums.data(), s.n, a.view, b.view, s, false);
      const auto finished = [&](const Finish& finish) {
        std::vector<Bf16> out = c.halves;
        packed::matmul(*kernels, Parallel(2), out.data(), a.half_view, b.half_view, s, finish);
        return floats_of(out);
      };
      std::vector<float> activated = sums, sloped = sums, with_bias = sums;
      for (std::size_t i = 0; i < sums.size(); ++i) {
        with_bias[i] += bias.values[i % static_cast<std::size_t>(s.n)];
        activated[i] = std::max(0.0f, with_bias[i]);
        sloped[i] = (pre.values[i] > 0 ? sums[i] : 0) + c.values[i];
      }
      EXPECT_EQ(finished({.bias = bias.halves.data()}), with_bias) << kernels->name;
      EXPECT_EQ(finished({.kind = Finish::Kind::slope,
                          .activation = Activation::relu,
                          .pre = pre.halves.data(),
                          .accumulate = true}),
                sloped)
          << kernels->name;
      EXPECT_EQ(finished({.bias = bias.halves.data(),
                          .kind = Finish::Kind::activation,
                          .activation = Activation::relu,
                          .pre = pre.halves.data()}),
                activated)
          << kernels->name;
      EXPECT_EQ(floats_of(pre.halves), with_bias) << kernels->name;
    }
  }
}

TEST(PackedMatmul, is_exact_with_more_threads_than_tiles) {
  for (const PackedKernels* kernels : kernels_here()) {
    for (const int threads : {1, 3, 4, 7, 16}) {
      for (const MatmulSize size : {MatmulSize{3, 3, 3}, {100, 10, 9}, {10, 200, 9}, {65, 130, 300}}) {
        const Form form{false, true, true, 1};
        EXPECT_EQ(wrong_elements(*kernels, threads, size, form), 0)
            << threads << " threads, " << name_of(*kernels, size, form);
      }
    }
  }
}

// Real numbers, whose sums are rounded: then the order of additions shows in the bits.
std::vector<float> product(const PackedKernels& kernels, int threads, MatmulSize s) {
  const Values a = random_values(1, 0, s.m * s.k), b = random_values(1, 1, s.k * s.n);
  const std::vector<float> left(a.begin(), a.end()), right(b.begin(), b.end());
  std::vector<float> c(static_cast<std::size_t>(s.m * s.n));
  packed::matmul(kernels, Parallel(threads), c.data(), s.n, row_major(left.data(), s.k),
                 row_major(right.data(), s.n), s, false);
  return c;
}

TEST(PackedMatmul, has_the_same_bits_with_any_number_of_threads) {
  for (const PackedKernels* kernels : kernels_here()) {
    for (const MatmulSize size : {MatmulSize{64, 64, 5000}, {200, 300, 400}, {300, 70, 1000}}) {
      const std::vector<float> one = product(*kernels, 1, size);
      for (const int threads : {2, 3, 5, 8}) EXPECT_EQ(product(*kernels, threads, size), one) << threads;
    }
  }
}

// Column j of row i of `part`, a product of the first m rows and the first n columns, and of `whole`.
void expect_same_elements(const std::vector<float>& part, std::int64_t m, std::int64_t n,
                          const std::vector<float>& whole, std::int64_t whole_n, const std::string& what) {
  std::int64_t different = 0;
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      different += std::bit_cast<std::uint32_t>(part[static_cast<std::size_t>(i * n + j)]) !=
                   std::bit_cast<std::uint32_t>(whole[static_cast<std::size_t>(i * whole_n + j)]);
    }
  }
  EXPECT_EQ(different, 0) << what;
}

// Real numbers, as product(), but the first n columns of a matrix with kColumns.
TEST(PackedMatmul, has_the_same_bits_in_an_element_whatever_is_beside_it) {
  constexpr std::int64_t kRows = 50, kColumns = 150, kK = 900;
  const Values a = random_values(1, 0, kRows * kK), b = random_values(1, 1, kK * kColumns);
  const std::vector<float> left(a.begin(), a.end()), right(b.begin(), b.end());
  for (const PackedKernels* kernels : kernels_here()) {
    const auto first = [&](std::int64_t m, std::int64_t n) {
      std::vector<float> c(static_cast<std::size_t>(m * n));
      packed::matmul(*kernels, Parallel(1), c.data(), n, row_major(left.data(), kK),
                     row_major(right.data(), kColumns), {m, n, kK}, false);
      return c;
    };
    const std::vector<float> whole = first(kRows, kColumns);
    for (const std::int64_t m : {1, 2, 3, 5, 8, 49}) {
      for (const std::int64_t n : {1, 4, 5, 8, 9, 16, 17, 33, 70, 149}) {
        expect_same_elements(first(m, n), m, n, whole, kColumns, name_of(*kernels, {m, n, kK}, {}));
      }
    }
  }
}

TEST(PackedMatmul, sums_of_no_products_are_zero) {
  for (const PackedKernels* kernels : kernels_here()) {
    for (const MatmulSize size : {MatmulSize{3, 5, 0}, {0, 5, 3}, {3, 0, 3}}) {
      expect_right(*kernels, size);
    }
  }
}

// 256 rows on two threads: 16 tiles of columns are divided evenly, and rows need not be packed twice.
TEST(PackedMatmul, divides_the_longer_side_and_leaves_no_thread_idle) {
  PackedKernels kernels = packed_kernels(Factors::f32);
  kernels.rows = 8;
  kernels.columns = 48;
  const auto division = [&](int threads, std::int64_t m, std::int64_t n) {
    const packed::Division d = packed::division_of(kernels, threads, m, n);
    return std::pair(d.rows, d.columns);
  };
  EXPECT_EQ(division(1, 256, 768), std::pair(1L, 1L));
  EXPECT_EQ(division(2, 256, 768), std::pair(1L, 2L));
  EXPECT_EQ(division(2, 4096, 768), std::pair(2L, 1L));
  EXPECT_EQ(division(2, 4096, 48), std::pair(2L, 1L));
  EXPECT_EQ(division(16, 4096, 3072), std::pair(4L, 4L));
  EXPECT_EQ(division(64, 8, 48 * 1000).first, 1);
}

TEST(PackedMatmul, uses_the_widest_instructions_of_this_processor) {
#if defined(__aarch64__)
  constexpr const char* kFlags = "Features";
#else
  constexpr const char* kFlags = "flags";
#endif
  std::ifstream cpuinfo("/proc/cpuinfo");  // in QEMU's emulation that of the real processor
  std::string flags;
  for (std::string line; std::getline(cpuinfo, line);) {
    if (line.starts_with(kFlags)) flags = line + ' ';
  }
  if (flags.empty()) GTEST_SKIP() << "no such flags in /proc/cpuinfo";
  const auto has = [&](const char* flag) {
    return flags.find(std::string(" ") + flag + ' ') != std::string::npos;
  };
  const bool avx512 = has("avx512f") && has("avx512dq") && has("avx512bw") && has("avx512vl");
  const std::string widest = avx512 ? "AVX-512" : has("avx2") && has("fma") ? "AVX2" : "128-bit vectors";
  EXPECT_EQ(packed_kernels(Factors::f32).name, widest);
  EXPECT_EQ(packed_kernels(Factors::bf16).name, avx512 && has("avx512_bf16") ? "AVX-512 BF16"
                                                : has("bf16")
                                                    ? "NEON BF16"
                                                    : widest + ", rounding to bf16: no faster than f32");
}

// Each multiply-add adds 1/2 · 1/2.
TEST(PackedMatmul, multiplies_and_adds_in_registers_as_often_as_asked) {
  for (const PackedKernels* kernels : kernels_here()) {
    const auto tile = static_cast<float>(kernels->rows * kernels->columns);
    EXPECT_EQ(kernels->multiply_adds(100) - kernels->multiply_adds(0), 25 * tile) << kernels->name;
  }
}

// The elements of a, multiplied by a matrix with ones on its diagonal: what packing has made of them.
std::vector<float> as_packed(const PackedKernels& kernels, const std::vector<float>& a) {
  const auto n = static_cast<std::int64_t>(a.size());
  std::vector<float> unit(a.size() * a.size()), c(a.size());
  for (std::int64_t i = 0; i < n; ++i) unit[static_cast<std::size_t>(i * n + i)] = 1;
  packed::matmul(kernels, Parallel(1), c.data(), n, row_major(a.data(), n), row_major(unit.data(), n),
                 {1, n, n}, false);
  return c;
}

// bf16 has 8 bits of significand: the numbers next to 1 are 1 + 2^-7 and 1 - 2^-8.
TEST(PackedMatmul, rounds_factors_to_nearest_in_bf16) {
  const std::vector<float> elements = {1,
                                       1 + 0x1p-8f,
                                       1 + 0x1.8p-8f,
                                       1 + 0x1.8p-7f,
                                       -1 - 0x1.1p-8f,
                                       1 - 0x1p-9f,
                                       0x1.fffffep127f / 256,
                                       0x1p-100f,
                                       3,
                                       0},
                           rounded = {1, 1,        1 + 0x1p-7f, 1 + 0x1p-6f, -1 - 0x1p-7f,
                                      1, 0x1p120f, 0x1p-100f,   3,           0};
  for (const PackedKernels* kernels : kernels_here()) {
    EXPECT_EQ(as_packed(*kernels, elements), kernels->factors == Factors::bf16 ? rounded : elements)
        << kernels->name;
  }
}

TEST(PackedMatmul, keeps_infinity_and_nan) {
  for (const PackedKernels* kernels : kernels_here()) {
    for (const std::int64_t k : {1, 2, 17}) {
      std::vector<float> a(static_cast<std::size_t>(k), 1), b = a;
      const auto product = [&](float last) {
        a.back() = last;
        float c = 0;
        packed::matmul(*kernels, Parallel(1), &c, 1, row_major(a.data(), k), row_major(b.data(), 1),
                       {1, 1, k}, false);
        return c;
      };
      EXPECT_EQ(product(INFINITY), INFINITY) << kernels->name << " k " << k;
      EXPECT_TRUE(std::isnan(product(std::bit_cast<float>(0x7fffffffu)))) << kernels->name << " k " << k;
    }
  }
}

}  // namespace
}  // namespace stagegpt::test
