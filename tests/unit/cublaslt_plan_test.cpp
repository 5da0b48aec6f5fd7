// What a status of cuBLASLt's heuristic means. The heuristic is a function of this file, so that the test
// needs no GPU.
#include <gtest/gtest.h>

#include <stdexcept>

#include "stage2_cuda/cuda/plan.h"

namespace {

cublasStatus_t answer = CUBLAS_STATUS_SUCCESS;

}  // namespace

// In place of the library's: finds no algorithm, with the status `answer`.
extern "C" cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t,
                                                         cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                                         cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                                         cublasLtMatmulPreference_t, int,
                                                         cublasLtMatmulHeuristicResult_t*, int* found) {
  *found = 0;
  return answer;
}

namespace stagegpt::gpu {
namespace {

// Whether there is a plan of a product with this epilogue, if the heuristic answers with `status`.
bool has_plan(Epilogue epilogue, cublasStatus_t status) {
  alignas(256) static float memory[256];
  ProductOf<float, float> product{
      .c = memory, .ldc = 16, .a = {memory, 16}, .b = {memory, 16}, .m = 16, .n = 16, .k = 16};
  product.epilogue = epilogue;
  if (epilogue == Epilogue::row_sums) product.row_sums = memory;
  answer = status;
  return make_plan(nullptr, PlanKey(product, Precision::f32), vector_of(product), nullptr).has_value();
}

TEST(CublasLtPlans, an_invalid_value_means_that_there_is_no_such_epilogue) {
  EXPECT_FALSE(has_plan(Epilogue::row_sums, CUBLAS_STATUS_INVALID_VALUE));
  EXPECT_THROW(has_plan(Epilogue::none, CUBLAS_STATUS_INVALID_VALUE), std::runtime_error);
}

TEST(CublasLtPlans, what_is_not_supported_has_no_plan_and_other_statuses_are_errors) {
  for (const Epilogue epilogue : {Epilogue::none, Epilogue::row_sums}) {
    EXPECT_FALSE(has_plan(epilogue, CUBLAS_STATUS_NOT_SUPPORTED));
    for (const cublasStatus_t status :
         {CUBLAS_STATUS_NOT_INITIALIZED, CUBLAS_STATUS_ALLOC_FAILED, CUBLAS_STATUS_ARCH_MISMATCH,
          CUBLAS_STATUS_EXECUTION_FAILED, CUBLAS_STATUS_INTERNAL_ERROR}) {
      EXPECT_THROW(has_plan(epilogue, status), std::runtime_error) << cublasLtGetStatusName(status);
    }
  }
}

}  // namespace
}  // namespace stagegpt::gpu
