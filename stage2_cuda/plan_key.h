// Everything on which a library's choice of an algorithm for a product depends.
#pragma once

#include <algorithm>
#include <compare>
#include <string>

#include "stage2_cuda/gemm.h"

namespace stagegpt::gpu {

// The largest power of two, at most 256, that divides an address. It decides which kernels can be used.
inline std::uint32_t alignment(const void* address) {
  const auto bits = reinterpret_cast<std::uintptr_t>(address);
  return static_cast<std::uint32_t>(std::min<std::uintptr_t>(256, bits & (~bits + 1)));
}

// The vector of a product's epilogue: a bias to add, or the place for the sums of rows.
template <class Factor, class Result>
const void* vector_of(const ProductOf<Factor, Result>& product) {
  return product.row_sums != nullptr ? product.row_sums : product.bias;
}

struct PlanKey {
  template <class Factor, class Result>
  PlanKey(const ProductOf<Factor, Result>& p, Precision precision)
      : factors(kDTypeOf<Factor>),
        result(kDTypeOf<Result>),
        tf32(precision == Precision::tf32 && factors == DType::f32),
        m(p.m),
        n(p.n),
        k(p.k),
        batch(p.batch),
        ldc(p.ldc),
        lda(p.a.ld),
        ldb(p.b.ld) {
    if (batch > 1) stride_c = p.stride_c, stride_a = p.a.stride, stride_b = p.b.stride;
    transposed_a = p.a.transposed, transposed_b = p.b.transposed;
    accumulate = p.accumulate, bias = p.bias != nullptr, epilogue = p.epilogue;
    aligned_c = alignment(p.c), aligned_a = alignment(p.a.data), aligned_b = alignment(p.b.data);
    if (vector_of(p) != nullptr) aligned_vector = alignment(vector_of(p));
    if (p.pre != nullptr) aligned_pre = alignment(p.pre);
  }
  auto operator<=>(const PlanKey&) const = default;

  // The key as a text for files: equal for equal keys alone.
  std::string text() const;

  DType factors, result;
  bool tf32;
  std::int64_t m, n, k, batch;
  std::int64_t ldc, lda, ldb;
  std::int64_t stride_c = 0, stride_a = 0, stride_b = 0;
  bool transposed_a, transposed_b, accumulate, bias;
  Epilogue epilogue;
  std::uint32_t aligned_c, aligned_a, aligned_b, aligned_vector = 0, aligned_pre = 0;
};

}  // namespace stagegpt::gpu
