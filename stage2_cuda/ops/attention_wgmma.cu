// Attention for compute capability 9.0.
#include <limits>

#include "stage2_cuda/attention_wgmma.h"
#include "stage2_cuda/kernels/attention_wgmma_backward.cuh"
#include "stage2_cuda/kernels/attention_wgmma_forward.cuh"

namespace stagegpt::gpu {
namespace {

constexpr std::int64_t kMostChannels = 128;

// Calls run(kBlocks), with kBlocks a constant: the blocks of 64 columns that hold a head.
template <class Run>
void with_blocks(const AttentionSize& s, const Run& run) {
  if (s.HS <= 64) return run(std::integral_constant<int, 1>());
  return run(std::integral_constant<int, 2>());
}

}  // namespace

std::string why_no_wgmma() {
  const int capability = compute_capability();
  if (capability == 90) return "";
  return concat("needs a GPU of compute capability 9.0, this one has ", capability / 10, '.',
                capability % 10);
}

bool wgmma_computes(const AttentionSize& s, const Dropout& dropout) {
  const bool fits = s.HS % 8 == 0 && s.HS <= kMostChannels && s.scale > 0 && !dropout.active();
  return fits && s.rows() > 0 && s.rows() + s.T <= std::numeric_limits<int>::max();
}

void wgmma_attention_forward(StreamHandle stream, Bf16* out, float* lse, const Bf16* qkv,
                             const AttentionSize& s) {
  with_blocks(s, [&](auto blocks) { wgmma_forward<blocks>(stream, out, lse, qkv, s); });
}

std::int64_t wgmma_scratch(const AttentionSize& s) {
  return 2 * s.B * s.NH * wgmma_call<QueriesWalk<1>>(s).padded_rows();
}

void wgmma_attention_backward(StreamHandle stream, Bf16* dqkv, bool accumulate, const Bf16* dout,
                              const Bf16* out, const float* lse, const Bf16* qkv, const AttentionSize& s,
                              float* scratch) {
  with_blocks(s, [&](auto blocks) {
    wgmma_backward<blocks>(stream, dqkv, accumulate, dout, out, lse, qkv, s, scratch);
  });
}

}  // namespace stagegpt::gpu
