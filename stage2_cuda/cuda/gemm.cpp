// GEMM by cuBLASLt: c = scale · a · b + bias, with GELU or the gradient of a bias in its epilogue. For each
// shape, the first algorithm of its heuristic is used and cached. Algorithms are not timed, so that a product
// has the same bits in every run.
#include "stage2_cuda/gemm.h"

#include <cublasLt.h>

#include <algorithm>
#include <compare>
#include <map>
#include <optional>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "stage2_cuda/cuda/check.h"
#include "stage2_cuda/device_counts.h"

namespace stagegpt::gpu {
namespace {

constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;  // recommended for Hopper's split-K kernels

void check_cublas(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw std::runtime_error(concat("cuBLASLt: ", what, ": ", cublasLtGetStatusString(status), " (",
                                    cublasLtGetStatusName(status), ')'));
  }
}

// Deleter of cuBLASLt's objects.
template <auto destroy>
struct Destroy {
  template <class T>
  void operator()(T* object) const {
    static_cast<void>(destroy(object));
  }
};
using Handle = std::unique_ptr<cublasLtContext, Destroy<cublasLtDestroy>>;
using Layout = std::unique_ptr<cublasLtMatrixLayoutOpaque_t, Destroy<cublasLtMatrixLayoutDestroy>>;
using Description = std::unique_ptr<cublasLtMatmulDescOpaque_t, Destroy<cublasLtMatmulDescDestroy>>;
using Preference =
    std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, Destroy<cublasLtMatmulPreferenceDestroy>>;

Handle make_handle() {
  cublasLtHandle_t handle = nullptr;
  check_cublas(cublasLtCreate(&handle), "creating a handle");
  return Handle(handle);
}

template <class T>
void set(const Layout& layout, cublasLtMatrixLayoutAttribute_t attribute, T value) {
  check_cublas(cublasLtMatrixLayoutSetAttribute(layout.get(), attribute, &value, sizeof(value)),
               "setting a matrix layout");
}

template <class T>
void set(const Description& description, cublasLtMatmulDescAttributes_t attribute, T value) {
  check_cublas(cublasLtMatmulDescSetAttribute(description.get(), attribute, &value, sizeof(value)),
               "setting a GEMM descriptor");
}

template <class T>
void set(const Preference& preference, cublasLtMatmulPreferenceAttributes_t attribute, T value) {
  check_cublas(cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof(value)),
               "setting a preference");
}

// The largest power of two, at most 256, that divides an address. It decides which kernels can be used.
std::uint32_t alignment(const void* address) {
  const auto bits = reinterpret_cast<std::uintptr_t>(address);
  return static_cast<std::uint32_t>(std::min<std::uintptr_t>(256, bits & (~bits + 1)));
}

template <class T>
constexpr cudaDataType_t kCudaType = std::is_same_v<T, Bf16> ? CUDA_R_16BF : CUDA_R_32F;

// What cuBLASLt's bias pointer points to: a bias to add, or the place for its gradient.
template <class Factor, class Result>
const void* vector_of(const ProductOf<Factor, Result>& product) {
  return product.row_sums != nullptr ? product.row_sums : product.bias;
}

// Everything on which the choice of an algorithm depends.
struct PlanKey {
  template <class Factor, class Result>
  explicit PlanKey(const ProductOf<Factor, Result>& p)
      : factors(kCudaType<Factor>),
        result(kCudaType<Result>),
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

  cudaDataType_t factors, result;
  std::int64_t m, n, k, batch;
  std::int64_t ldc, lda, ldb;
  std::int64_t stride_c = 0, stride_a = 0, stride_b = 0;
  bool transposed_a, transposed_b, accumulate, bias;
  Epilogue epilogue;
  std::uint32_t aligned_c, aligned_a, aligned_b, aligned_vector = 0, aligned_pre = 0;
};

// cuBLASLt's matrices are column-major, and a row-major matrix read as column-major is its transpose. So it
// computes cᵀ (n,m) = bᵀ (n,k) · aᵀ (k,m): b is its first operand, and the transpose flags stay the same. A
// bias per column of c is a bias per row of cᵀ, as cuBLASLt's bias epilogue expects. Its auxiliary matrix is
// pre, transposed like c. The sums of a's rows are those of its second operand over k, one per column of cᵀ:
// the epilogue BGRADB. They have the type of c, and overwrite.
struct Plan {
  Description description;
  Layout first, second, result;
  cublasLtMatmulAlgo_t algorithm;
};

// rows, columns: of the matrix in memory, read as column-major.
Layout make_layout(cudaDataType_t type, std::int64_t rows, std::int64_t columns, std::int64_t ld,
                   std::int64_t batch, std::int64_t stride) {
  cublasLtMatrixLayout_t created = nullptr;
  check_cublas(cublasLtMatrixLayoutCreate(&created, type, static_cast<std::uint64_t>(rows),
                                          static_cast<std::uint64_t>(columns), ld),
               "creating a matrix layout");
  Layout layout(created);
  set(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<std::int32_t>(batch));
  set(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, stride);
  return layout;
}

Layout make_factor(cudaDataType_t type, std::int64_t rows, std::int64_t columns, bool transposed,
                   std::int64_t ld, std::int64_t batch, std::int64_t stride) {
  return transposed ? make_layout(type, columns, rows, ld, batch, stride)
                    : make_layout(type, rows, columns, ld, batch, stride);
}

cublasLtEpilogue_t epilogue_of(const PlanKey& key) {
  switch (key.epilogue) {
    case Epilogue::none:
      return key.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    case Epilogue::gelu:
      return key.bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    case Epilogue::gelu_backward:
      return CUBLASLT_EPILOGUE_DGELU;
    case Epilogue::row_sums:
      return CUBLASLT_EPILOGUE_BGRADB;
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
}

// Where a GEMM finds its bias, or puts the bias's gradient, and where its pre-activation is.
void set_pointers(const Description& description, const void* vector, const void* pre) {
  if (vector != nullptr) set(description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, vector);
  if (pre != nullptr) set(description, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, pre);
}

Description make_description(const PlanKey& key, Precision precision, const void* vector, const void* pre) {
  cublasLtMatmulDesc_t created = nullptr;
  const bool tf32 = precision == Precision::tf32 && key.factors == CUDA_R_32F;
  const auto type = tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  check_cublas(cublasLtMatmulDescCreate(&created, type, CUDA_R_32F), "creating a GEMM descriptor");
  Description description(created);
  set(description, CUBLASLT_MATMUL_DESC_TRANSA, key.transposed_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(description, CUBLASLT_MATMUL_DESC_TRANSB, key.transposed_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(description, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(key));
  if (pre != nullptr) set(description, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, key.ldc);
  set_pointers(description, vector, pre);  // the heuristic uses their alignment
  return description;
}

Preference make_preference(const PlanKey& key) {
  cublasLtMatmulPreference_t created = nullptr;
  check_cublas(cublasLtMatmulPreferenceCreate(&created), "creating a preference");
  Preference preference(created);
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.aligned_b);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.aligned_a);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.aligned_c);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.aligned_c);
  return preference;
}

// Nothing if cuBLASLt has no algorithm.
std::optional<Plan> make_plan(cublasLtHandle_t handle, const PlanKey& key, Precision precision,
                              const void* vector, const void* pre) {
  Plan plan{make_description(key, precision, vector, pre),
            make_factor(key.factors, key.n, key.k, key.transposed_b, key.ldb, key.batch, key.stride_b),
            make_factor(key.factors, key.k, key.m, key.transposed_a, key.lda, key.batch, key.stride_a),
            make_layout(key.result, key.n, key.m, key.ldc, key.batch, key.stride_c),
            {}};
  const Preference preference = make_preference(key);
  cublasLtMatmulHeuristicResult_t found;
  int count = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle, plan.description.get(), plan.first.get(), plan.second.get(), plan.result.get(),
      plan.result.get(), preference.get(), /*requestedAlgoCount=*/1, &found, &count);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || (status == CUBLAS_STATUS_SUCCESS && count == 0)) {
    return std::nullopt;
  }
  check_cublas(status, "choosing an algorithm");
  check_cublas(found.state, "choosing an algorithm");
  plan.algorithm = found.algo;
  return plan;
}

class CublasLtGemm final : public Gemm {
 public:
  explicit CublasLtGemm(Precision precision)
      : precision_(precision), handle_(make_handle()), workspace_(allocate(kWorkspaceBytes)) {
    check_cuda(workspace_ == nullptr ? cudaErrorMemoryAllocation : cudaSuccess,
               "allocating cuBLASLt's workspace of 32 MiB");
  }
  ~CublasLtGemm() override { deallocate(workspace_); }
  CublasLtGemm(const CublasLtGemm&) = delete;
  CublasLtGemm& operator=(const CublasLtGemm&) = delete;

  void run(const Product& product, StreamHandle stream) override { multiply(product, stream); }
  void run(const ProductOf<Bf16, Bf16>& product, StreamHandle stream) override { multiply(product, stream); }
  void run(const ProductOf<Bf16, float>& product, StreamHandle stream) override { multiply(product, stream); }
  using Gemm::has_epilogue;
  // Rows of cuBLASLt's auxiliary matrix must be a multiple of eight elements.
  bool has_epilogue(const ProductOf<Bf16, Bf16>& product) override {
    return is_empty(product) || (product.ldc % 8 == 0 && plan_for(product));
  }
  bool has_epilogue(const ProductOf<Bf16, float>& product) override {
    return is_empty(product) || plan_for(product);
  }

 private:
  // All calls must use the same stream, because they share the workspace.
  template <class Factor, class Result>
  void multiply(const ProductOf<Factor, Result>& product, StreamHandle stream) {
    if (is_empty(product)) return;
    const std::optional<Plan>& found = plan_for(product);
    if (!found) {
      throw std::runtime_error(concat("cuBLASLt has no algorithm for a GEMM of ", product.m, 'x', product.k,
                                      " and ", product.k, 'x', product.n, ", batch ", product.batch));
    }
    const Plan& plan = *found;
    set_pointers(plan.description, vector_of(product), product.pre);
    const float beta = product.accumulate ? 1 : 0;
    ++device_counts.products;
    check_cublas(cublasLtMatmul(handle_.get(), plan.description.get(), &product.scale, product.b.data,
                                plan.first.get(), product.a.data, plan.second.get(), &beta, product.c,
                                plan.result.get(), product.c, plan.result.get(), &plan.algorithm, workspace_,
                                kWorkspaceBytes, static_cast<cudaStream_t>(stream)),
                 "computing a GEMM");
  }

  template <class Factor, class Result>
  const std::optional<Plan>& plan_for(const ProductOf<Factor, Result>& product) {
    const PlanKey key(product);
    const auto known = plans_.find(key);
    if (known != plans_.end()) return known->second;
    auto plan = make_plan(handle_.get(), key, precision_, vector_of(product), product.pre);
    return plans_.emplace(key, std::move(plan)).first->second;
  }

  Precision precision_;
  Handle handle_;
  void* workspace_;
  std::map<PlanKey, std::optional<Plan>> plans_;
};

}  // namespace

std::unique_ptr<Gemm> make_library_gemm(Precision precision) {
  return std::make_unique<CublasLtGemm>(precision);
}

}  // namespace stagegpt::gpu
