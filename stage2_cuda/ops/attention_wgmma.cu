// Attention for compute capability 9.0.
#include <limits>

#include "stage2_cuda/kernels/attention_wgmma_backward.cuh"
#include "stage2_cuda/kernels/attention_wgmma_forward.cuh"
#include "stage2_cuda/wgmma.h"

namespace stagegpt::gpu {
namespace {

constexpr std::int64_t kMostChannels = 128;

// Calls run(kBlocks, kDropout), which are constants: the blocks of 64 columns that hold a head.
template <class Run>
void with_kernels(const AttentionSize& s, const Dropout& dropout, const Run& run) {
  const auto with_blocks = [&](auto is_dropout) {
    if (s.HS <= 64) return run(std::integral_constant<int, 1>(), is_dropout);
    return run(std::integral_constant<int, 2>(), is_dropout);
  };
  dropout.active() ? with_blocks(std::true_type()) : with_blocks(std::false_type());
}

}  // namespace

std::string why_no_wgmma() {
  const int capability = compute_capability();
  if (capability == 90) return "";
  return concat("needs a GPU of compute capability 9.0, this one has ", capability / 10, '.',
                capability % 10);
}

bool wgmma_computes(const AttentionSize& s) {
  const bool fits = s.HS % 8 == 0 && s.HS <= kMostChannels && s.scale > 0;
  return fits && s.rows() > 0 && s.rows() + s.T <= std::numeric_limits<int>::max() / 4;
}

void wgmma_attention_forward(StreamHandle stream, Bf16* out, float* lse, const Bf16* qkv,
                             const AttentionSize& s, const Dropout& dropout) {
  with_kernels(s, dropout, [&](auto blocks, auto is_dropout) {
    wgmma_forward<blocks, is_dropout>(stream, out, lse, qkv, s, dropout);
  });
}

std::int64_t wgmma_scratch(const AttentionSize& s) { return 2 * s.B * s.NH * padded_to_tiles(s.T); }

void wgmma_attention_backward(StreamHandle stream, Bf16* dqkv, bool accumulate, const Bf16* dout,
                              const Bf16* out, const float* lse, const Bf16* qkv, const AttentionSize& s,
                              const Dropout& dropout, float* scratch) {
  with_kernels(s, dropout, [&](auto blocks, auto is_dropout) {
    wgmma_backward<blocks, is_dropout>(stream, dqkv, accumulate, dout, out, lse, qkv, s, dropout, scratch);
  });
}

}  // namespace stagegpt::gpu
