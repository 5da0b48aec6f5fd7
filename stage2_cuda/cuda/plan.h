// A plan of cuBLASLt: the description of a product, and the algorithm that computes it.
#pragma once

#include <cublasLt.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "stage2_cuda/plan_key.h"

namespace stagegpt::gpu {

inline constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;  // for Hopper's split-K kernels

// Throws std::runtime_error with cuBLASLt's message.
void check_cublas(cublasStatus_t status, const char* what);

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

Handle make_handle();

// cuBLASLt's matrices are column-major, and a row-major matrix read as column-major is its transpose. So it
// computes cᵀ (n,m) = bᵀ (n,k) · aᵀ (k,m): b is its first operand, and the transpose flags stay the same. A
// bias per column of c is a bias per row of cᵀ, as cuBLASLt's bias epilogue expects. Its auxiliary matrix is
// pre, transposed like c. The sums of a's rows are those of its second operand over k, one per column of cᵀ:
// the epilogue BGRADB. They have the type of c, and overwrite.
struct Plan {
  Description description;
  Layout first, second, result;
  cublasLtMatmulAlgo_t algorithm;
  bool chosen = false;  // by time, now or in a file; otherwise by cuBLASLt's heuristic
};

// With the first algorithm of the heuristic. Nothing if cuBLASLt has none.
std::optional<Plan> make_plan(cublasLtHandle_t handle, const PlanKey& key, const void* vector,
                              const void* pre);
// Where a GEMM finds its bias, or puts the bias's gradient, and where its pre-activation is.
void set_pointers(const Description& description, const void* vector, const void* pre);

// The first algorithms of the heuristic, at most `most`.
std::vector<cublasLtMatmulAlgo_t> first_algorithms(cublasLtHandle_t handle, const Plan& plan,
                                                   const PlanKey& key, int most);
// An algorithm as hexadecimal digits. Only the same version of cuBLASLt can read them.
std::string text_of(const cublasLtMatmulAlgo_t& algorithm);
// The algorithm with this text. Nothing if the text is of another kind, or if cuBLASLt says that the
// algorithm cannot compute the plan's product.
std::optional<cublasLtMatmulAlgo_t> algorithm_of(cublasLtHandle_t handle, const Plan& plan,
                                                 const std::string& text);

}  // namespace stagegpt::gpu
