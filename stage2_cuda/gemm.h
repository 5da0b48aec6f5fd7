// GEMM by a library: cuBLASLt on a GPU (cuda/gemm.cpp), the host's BLAS under emulation (emulation/gemm.cpp).
// The hand-written versions are in kernels/matmul.cuh and kernels/matmul_wgmma.cuh.
#pragma once

#include <cstdint>
#include <memory>

#include "common/base/error.h"
#include "common/tensor/dtype.h"
#include "stage2_cuda/runtime.h"

namespace stagegpt::gpu {

// An operand or a result, row-major in device memory. Rows are `ld` elements apart, matrices of a batch
// `stride` elements. A transposed operand is stored as its transpose.
template <class T>
struct MatrixOf {
  const T* data = nullptr;
  std::int64_t ld = 0;
  bool transposed = false;
  std::int64_t stride = 0;
};

template <class T>
MatrixOf<T> transposed(MatrixOf<T> matrix) {
  matrix.transposed = !matrix.transposed;
  return matrix;
}

// What is done with a product p = scale · a · b + bias before it is stored.
enum class Epilogue {
  none,           // c = p
  gelu,           // c = gelu_new(p), pre = p
  gelu_backward,  // c = p ⊙ gelu_new'(pre)
  row_sums,       // c = p or, with `accumulate`, c += p; row_sums = Σ_k a[·][k]
};

// c (m,n) = scale · a (m,k) · b (k,n) + bias, or += with `accumulate`, for each matrix of a batch. Factors
// may be bf16, with a result in bf16 or f32; sums are in f32.
template <class Factor, class Result>
struct ProductOf {
  Result* c = nullptr;
  std::int64_t ldc = 0, stride_c = 0;
  MatrixOf<Factor> a, b;
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t batch = 1;
  float scale = 1;
  bool accumulate = false;
  const Result* bias = nullptr;        // (n), added to every row; not allowed with accumulate or a batch
  Epilogue epilogue = Epilogue::none;  // GELU is not allowed with them either
  Result* pre = nullptr;               // (m,n), with rows ldc elements apart
  Result* row_sums = nullptr;          // (m), overwritten; not allowed with a bias, a batch or a scale
};

using Matrix = MatrixOf<float>;
using Product = ProductOf<float, float>;

// Whether there is nothing to compute.
template <class Factor, class Result>
bool is_empty(const ProductOf<Factor, Result>& product) {
  const bool empty = product.m == 0 || product.n == 0 || product.batch == 0;
  check(empty || product.k > 0, "a product over ", product.k, " elements");
  check(product.bias == nullptr || (!product.accumulate && product.batch == 1),
        "a product with a bias that accumulates, or is one of a batch");
  const bool sums = product.epilogue == Epilogue::row_sums;
  check(product.epilogue == Epilogue::none || sums ||
            (!product.accumulate && product.batch == 1 && product.pre),
        "a product with GELU that accumulates, is one of a batch, or has no pre-activation");
  check(!sums || (!product.bias && product.batch == 1 && product.scale == 1 && product.row_sums),
        "a product with row sums that has a bias or a scale, is one of a batch, or has no place for them");
  return empty;
}

// --precision. With tf32, GEMM and flash attention round f32 factors to TF32 (10 bits), for tensor cores;
// with bf16, activations and the parameters that they are multiplied by are bf16.
enum class Precision { f32, tf32, bf16 };

class Gemm {
 public:
  virtual ~Gemm() = default;
  virtual void run(const Product& product, StreamHandle stream) = 0;
  // Whether run() computes this product's epilogue. In f32 none does: how exact a library's tanh is, is not
  // documented.
  virtual bool has_epilogue(const Product&) { return false; }
  virtual bool has_epilogue(const ProductOf<Bf16, Bf16>&) { return false; }
  virtual bool has_epilogue(const ProductOf<Bf16, float>&) { return false; }
  // Implementations in f32 have none.
  virtual void run(const ProductOf<Bf16, Bf16>&, StreamHandle) { check(false, "gemm: no products in bf16"); }
  virtual void run(const ProductOf<Bf16, float>&, StreamHandle) { check(false, "gemm: no products in bf16"); }
};

struct GemmPlans;  // plan_cache.h

// Without plans, algorithms are those that the library proposes first.
std::unique_ptr<Gemm> make_library_gemm(Precision precision, std::shared_ptr<GemmPlans> plans = nullptr);

}  // namespace stagegpt::gpu
