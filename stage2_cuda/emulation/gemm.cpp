// The library's GEMM under emulation, c = scale · a · b + bias: OpenBLAS in place of cuBLASLt. It has one
// algorithm for each product, which is thus the fastest.
#include "stage2_cuda/gemm.h"

#include <numeric>
#include <vector>

#include "common/tensor/half_floats.h"
#include "stage0_serial/blas/openblas.h"
#include "stage2_cuda/device_counts.h"
#include "stage2_cuda/emulation/device_memory.h"
#include "stage2_cuda/emulation/launch.h"
#include "stage2_cuda/kernels/activation.cuh"
#include "stage2_cuda/plan_cache.h"
#include "stage2_cuda/plan_key.h"

namespace stagegpt::gpu {
namespace {

template <class T>
T* on_host(T* device) {
  return static_cast<T*>(emulation::device_memory().view(device));
}

template <class T>
MatrixView<T> view(const MatrixOf<T>& matrix, std::int64_t index) {
  const MatrixView<T> stored = stagegpt::row_major(on_host(matrix.data) + index * matrix.stride, matrix.ld);
  return matrix.transposed ? stored.transposed() : stored;
}

void add_bias(float* c, std::int64_t ldc, const float* bias, std::int64_t rows, std::int64_t columns) {
  for (std::int64_t m = 0; m < rows; ++m) {
    for (std::int64_t n = 0; n < columns; ++n) c[m * ldc + n] += bias[n];
  }
}

// The sum of each row of a row-major matrix.
template <class T>
void sum_rows(T* sums, const std::vector<float>& matrix, std::int64_t rows, std::int64_t columns) {
  for (std::int64_t m = 0; m < rows; ++m) {
    const auto row = matrix.begin() + m * columns;
    sums[m] = rounded_to<T>(std::accumulate(row, row + columns, 0.0F));
  }
}

// A row-major copy of an operand, each element converted.
template <class T, class Convert>
std::vector<float> copied(const MatrixView<T>& factor, std::int64_t rows, std::int64_t columns,
                          const Convert& convert) {
  std::vector<float> copy;
  copy.reserve(static_cast<std::size_t>(rows * columns));
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < columns; ++column) copy.push_back(convert(factor(row, column)));
  }
  return copy;
}

struct OperandBytes {
  std::size_t read = 0, written = 0;
};

// Each operand once: c, the bias, the pre-activation, the row sums.
template <class T, class Result>
OperandBytes operand_bytes(const ProductOf<T, Result>& p) {
  const auto times = [](auto... extents) {
    return (std::size_t{1} * ... * static_cast<std::size_t>(extents));
  };
  OperandBytes bytes;
  const std::size_t result = times(p.batch, p.m, p.n, sizeof(Result));
  bytes.read = times(p.batch, p.k, sizeof(T)) * static_cast<std::size_t>(p.m + p.n);
  bytes.written = result;
  if (p.accumulate) bytes.read += result;
  if (p.bias != nullptr) bytes.read += times(p.n, sizeof(*p.bias));
  if (p.pre != nullptr) (p.epilogue == Epilogue::gelu ? bytes.written : bytes.read) += result;
  if (p.row_sums != nullptr) bytes.written += times(p.m, sizeof(*p.row_sums));
  return bytes;
}

class BlasGemm final : public Gemm {
 public:
  BlasGemm(Precision precision, std::shared_ptr<GemmPlans> plans)
      : precision_(precision), plans_(std::move(plans)) {}
  void run(const Product& product, StreamHandle stream) override {
    submit_product(product, stream, [product, precision = precision_] { multiply(product, precision); });
  }
  void run(const ProductOf<Bf16, Bf16>& product, StreamHandle stream) override {
    submit_product(product, stream, [product] { multiply(product); });
  }
  void run(const ProductOf<Bf16, float>& product, StreamHandle stream) override {
    submit_product(product, stream, [product] { multiply(product); });
  }
  using Gemm::has_epilogue;
  // cuBLASLt's condition, so that both cases occur here too.
  bool has_epilogue(const ProductOf<Bf16, Bf16>& product) override { return product.ldc % 8 == 0; }
  bool has_epilogue(const ProductOf<Bf16, float>&) override { return true; }

 private:
  template <class AnyProduct, class Multiply>
  void submit_product(const AnyProduct& product, StreamHandle stream, const Multiply& multiply) {
    if (is_empty(product)) return;
    ++device_counts.products;
    if (plans_ && plans_->tune) plans_->cache.set(PlanKey(product, precision_).text(), "the only one");
    submit(stream, [=] {
      multiply();
      emulation::LaunchObserver* const observer = emulation::launch_observer;
      if (observer == nullptr) return;
      const auto [read, written] = operand_bytes(product);
      observer->moves(emulation::LaunchObserver::Mover::library, read, written);
    });
  }

  static const OpenBlas& blas() {
    const OpenBlas& blas = OpenBlas::instance();
    blas.set_threads(1);  // for the same bits everywhere; GEMM takes little of an emulated step's time
    return blas;
  }

  static void multiply(const Product& product, Precision precision) {
    const auto& [c, ldc, stride_c, a, b, m, n, k, batch, scale, accumulate, bias, epilogue, pre, row_sums] =
        product;
    check(epilogue == Epilogue::none, "gemm: an epilogue in f32");
    for (std::int64_t i = 0; i < batch; ++i) {
      float* const out = on_host(c) + i * stride_c;
      if (precision == Precision::tf32) {
        const auto left = copied(view(a, i), m, k, rounded_to_tf32),
                   right = copied(view(b, i), k, n, rounded_to_tf32);
        blas().sgemm(out, ldc, stagegpt::row_major(left.data(), k), stagegpt::row_major(right.data(), n),
                     {m, n, k}, accumulate, scale);
      } else {
        blas().sgemm(out, ldc, view(a, i), view(b, i), {m, n, k}, accumulate, scale);
      }
    }
    if (bias != nullptr) add_bias(on_host(c), ldc, on_host(bias), m, n);
  }

  // Factors in bf16: sums in f32, which are rounded once if the result is bf16.
  template <class Result>
  static void multiply(const ProductOf<Bf16, Result>& product) {
    const auto& [c, ldc, stride_c, a, b, m, n, k, batch, scale, accumulate, bias, epilogue, pre, row_sums] =
        product;
    const auto wide = [](auto value) { return as_float(value); };
    for (std::int64_t i = 0; i < batch; ++i) {
      Result* const out = on_host(c) + i * stride_c;
      Result* const saved = pre == nullptr ? out : on_host(pre);
      const MatrixView<Result> result = stagegpt::row_major(static_cast<const Result*>(out), ldc);
      const auto left = copied(view(a, i), m, k, wide), right = copied(view(b, i), k, n, wide);
      std::vector<float> sums(static_cast<std::size_t>(m * n));
      if (accumulate) sums = copied(result, m, n, wide);
      blas().sgemm(sums.data(), n, stagegpt::row_major(left.data(), k), stagegpt::row_major(right.data(), n),
                   {m, n, k}, accumulate, scale);
      if (row_sums != nullptr) sum_rows(on_host(row_sums), left, m, k);
      if (bias != nullptr)
        add_bias(sums.data(), n, copied(stagegpt::row_major(on_host(bias), n), 1, n, wide).data(), m, n);
      for (std::int64_t row = 0; row < m; ++row) {
        for (std::int64_t column = 0; column < n; ++column) {
          const std::int64_t at = row * ldc + column;
          store(out[at], saved[at], sums[static_cast<std::size_t>(row * n + column)], epilogue);
        }
      }
    }
  }

  // Writes an element of a product, and of its pre-activation.
  template <class T>
  static void store(T& out, T& pre, float value, Epilogue epilogue) {
    switch (epilogue) {
      case Epilogue::none:
      case Epilogue::row_sums:
        out = rounded_to<T>(value);
        break;
      case Epilogue::gelu:
        pre = rounded_to<T>(value);
        out = rounded_to<T>(gelu_new(value).value);
        break;
      case Epilogue::gelu_backward:
        out = rounded_to<T>(value * gelu_new(as_float(pre)).slope);
    }
  }

  Precision precision_;
  std::shared_ptr<GemmPlans> plans_;
};

}  // namespace

std::unique_ptr<Gemm> make_library_gemm(Precision precision, std::shared_ptr<GemmPlans> plans) {
  OpenBlas::instance();  // loads the library, so that an error is reported before the first step
  return std::make_unique<BlasGemm>(precision, std::move(plans));
}

}  // namespace stagegpt::gpu
