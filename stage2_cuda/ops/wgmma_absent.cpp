// In place of ops/attention_wgmma.cu and ops/matmul_wgmma.cu in programs that are not compiled for compute
// capability 9.0.
#include "common/base/error.h"
#include "stage2_cuda/wgmma.h"

namespace stagegpt::gpu {

std::string why_no_wgmma() {
  return "needs a program that is compiled for compute capability 9.0; build with "
         "-DCMAKE_CUDA_ARCHITECTURES=90 and CUDA 12.5 or newer";
}
bool wgmma_computes(const AttentionSize&) { return false; }
void wgmma_attention_forward(StreamHandle, Bf16*, float*, const Bf16*, const AttentionSize&, const Dropout&) {
  check(false, "wgmma_attention_forward is absent");
}
std::int64_t wgmma_scratch(const AttentionSize&) { return 0; }
void wgmma_attention_backward(StreamHandle, Bf16*, bool, const Bf16*, const Bf16*, const float*, const Bf16*,
                              const AttentionSize&, const Dropout&, float*) {
  check(false, "wgmma_attention_backward is absent");
}

std::unique_ptr<Gemm> make_wgmma_gemm(std::unique_ptr<Gemm>) {
  check(false, "make_wgmma_gemm is absent");
  return nullptr;
}
void matmul_v7(StreamHandle, const ProductOf<Bf16, Bf16>&) { check(false, "matmul_v7 is absent"); }
void matmul_v8(StreamHandle, const ProductOf<Bf16, Bf16>&) { check(false, "matmul_v8 is absent"); }
void matmul_v9(StreamHandle, const ProductOf<Bf16, Bf16>&) { check(false, "matmul_v9 is absent"); }

}  // namespace stagegpt::gpu
