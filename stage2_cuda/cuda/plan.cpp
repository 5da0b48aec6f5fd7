#include "stage2_cuda/cuda/plan.h"

#include <array>
#include <charconv>
#include <cstdio>
#include <stdexcept>

#include "stage2_cuda/cuda/check.h"

namespace stagegpt::gpu {
namespace {

using Preference =
    std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, Destroy<cublasLtMatmulPreferenceDestroy>>;

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

cudaDataType_t cuda_type(DType dtype) { return dtype == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F; }

// rows, columns: of the matrix in memory, read as column-major.
Layout make_layout(DType type, std::int64_t rows, std::int64_t columns, std::int64_t ld, std::int64_t batch,
                   std::int64_t stride) {
  cublasLtMatrixLayout_t created = nullptr;
  check_cublas(cublasLtMatrixLayoutCreate(&created, cuda_type(type), static_cast<std::uint64_t>(rows),
                                          static_cast<std::uint64_t>(columns), ld),
               "creating a matrix layout");
  Layout layout(created);
  set(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<std::int32_t>(batch));
  set(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, stride);
  return layout;
}

Layout make_factor(DType type, std::int64_t rows, std::int64_t columns, bool transposed, std::int64_t ld,
                   std::int64_t batch, std::int64_t stride) {
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

Description make_description(const PlanKey& key, const void* vector, const void* pre) {
  cublasLtMatmulDesc_t created = nullptr;
  const auto type = key.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
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

// cuBLASLt's documentation allows to store these words, and to restore them for the same version.
constexpr std::size_t kWords = sizeof(cublasLtMatmulAlgo_t::data) / sizeof(std::uint64_t), kDigits = 16;

}  // namespace

void check_cublas(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw std::runtime_error(concat("cuBLASLt: ", what, ": ", cublasLtGetStatusString(status), " (",
                                    cublasLtGetStatusName(status), ')'));
  }
}

Handle make_handle() {
  cublasLtHandle_t handle = nullptr;
  check_cublas(cublasLtCreate(&handle), "creating a handle");
  return Handle(handle);
}

void set_pointers(const Description& description, const void* vector, const void* pre) {
  if (vector != nullptr) set(description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, vector);
  if (pre != nullptr) set(description, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, pre);
}

std::optional<Plan> make_plan(cublasLtHandle_t handle, const PlanKey& key, const void* vector,
                              const void* pre) {
  Plan plan{make_description(key, vector, pre),
            make_factor(key.factors, key.n, key.k, key.transposed_b, key.ldb, key.batch, key.stride_b),
            make_factor(key.factors, key.k, key.m, key.transposed_a, key.lda, key.batch, key.stride_a),
            make_layout(key.result, key.n, key.m, key.ldc, key.batch, key.stride_c),
            {}};
  const std::vector<cublasLtMatmulAlgo_t> first = first_algorithms(handle, plan, key, 1);
  if (first.empty()) return std::nullopt;
  plan.algorithm = first[0];
  return plan;
}

std::vector<cublasLtMatmulAlgo_t> first_algorithms(cublasLtHandle_t handle, const Plan& plan,
                                                   const PlanKey& key, int most) {
  const Preference preference = make_preference(key);
  std::vector<cublasLtMatmulHeuristicResult_t> found(static_cast<std::size_t>(most));
  int count = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle, plan.description.get(), plan.first.get(), plan.second.get(), plan.result.get(),
      plan.result.get(), preference.get(), most, found.data(), &count);
  // Some versions report an epilogue that they do not have as an invalid value.
  const bool no_epilogue = status == CUBLAS_STATUS_INVALID_VALUE && key.epilogue != Epilogue::none;
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || no_epilogue) return {};
  check_cublas(status, "choosing an algorithm");
  std::vector<cublasLtMatmulAlgo_t> algorithms;
  for (int i = 0; i < count; ++i) {
    check_cublas(found[static_cast<std::size_t>(i)].state, "choosing an algorithm");
    algorithms.push_back(found[static_cast<std::size_t>(i)].algo);
  }
  return algorithms;
}

std::string text_of(const cublasLtMatmulAlgo_t& algorithm) {
  std::string text;
  for (const std::uint64_t word : algorithm.data) {
    std::array<char, kDigits + 1> digits = {};
    std::snprintf(digits.data(), digits.size(), "%016llx", static_cast<unsigned long long>(word));
    text += digits.data();
  }
  return text;
}

std::optional<cublasLtMatmulAlgo_t> algorithm_of(cublasLtHandle_t handle, const Plan& plan,
                                                 const std::string& text) {
  cublasLtMatmulAlgo_t algorithm = {};
  if (text.size() != kWords * kDigits) return std::nullopt;
  for (std::size_t i = 0; i < kWords; ++i) {
    const char* const begin = text.data() + i * kDigits;
    const auto [end, error] = std::from_chars(begin, begin + kDigits, algorithm.data[i], 16);
    if (error != std::errc() || end != begin + kDigits) return std::nullopt;
  }
  cublasLtMatmulHeuristicResult_t result = {};
  const cublasStatus_t status =
      cublasLtMatmulAlgoCheck(handle, plan.description.get(), plan.first.get(), plan.second.get(),
                              plan.result.get(), plan.result.get(), &algorithm, &result);
  const bool fits = status == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= kWorkspaceBytes;
  return fits ? std::optional(algorithm) : std::nullopt;
}

}  // namespace stagegpt::gpu
