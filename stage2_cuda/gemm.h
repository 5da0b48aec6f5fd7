// GEMM by a library: cuBLASLt on a GPU (cuda/gemm.cpp), the host's BLAS under emulation (emulation/gemm.cpp).
// The hand-written versions are in kernels/matmul.cuh.
#pragma once

#include <cstdint>
#include <memory>

#include "common/base/error.h"
#include "stage2_cuda/runtime.h"

namespace stagegpt::gpu {

// An operand or a result, row-major in device memory. Rows are `ld` elements apart, matrices of a batch
// `stride` elements. A transposed operand is stored as its transpose.
struct Matrix {
  const float* data = nullptr;
  std::int64_t ld = 0;
  bool transposed = false;
  std::int64_t stride = 0;
};

// c (m,n) = scale · a (m,k) · b (k,n) + bias, or += with `accumulate`, for each matrix of a batch.
struct Product {
  float* c = nullptr;
  std::int64_t ldc = 0, stride_c = 0;
  Matrix a, b;
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t batch = 1;
  float scale = 1;
  bool accumulate = false;
  const float* bias = nullptr;  // (n), added to every row; not allowed with accumulate or a batch
};

// Whether there is nothing to compute.
inline bool is_empty(const Product& product) {
  const bool empty = product.m == 0 || product.n == 0 || product.batch == 0;
  check(empty || product.k > 0, "a product over ", product.k, " elements");
  check(product.bias == nullptr || (!product.accumulate && product.batch == 1),
        "a product with a bias that accumulates, or is one of a batch");
  return empty;
}

// How f32 operands are multiplied: in f32, or rounded to TF32 (10-bit mantissa) on tensor cores.
enum class Precision { f32, tf32 };

class Gemm {
 public:
  virtual ~Gemm() = default;
  virtual void run(const Product& product, StreamHandle stream) = 0;
};

std::unique_ptr<Gemm> make_library_gemm(Precision precision);

}  // namespace stagegpt::gpu
