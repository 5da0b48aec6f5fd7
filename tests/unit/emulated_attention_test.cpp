// Attention for compute capability 9.0 divides its work among the multiprocessors. Its results do not depend
// on their number, which on the emulator is that of its threads.
#include <gtest/gtest.h>

#include "common/autograd/ops/attention.h"
#include "stage2_cuda/cuda_backend.h"
#include "tests/emulation/emulated.h"
#include "tests/support/tensors.h"

namespace stagegpt::test {
namespace {

using namespace gpu;

struct Results {
  Values out, lse, dqkv;
  bool operator==(const Results&) const = default;
};

constexpr std::int64_t kT = 400;  // two tiles of the forward's 256 rows, three of the backward's 192
constexpr int kHeads = 5;

Results attention_on(int multiprocessors) {
  const EmulatedDevice device(90, multiprocessors);
  open_device(0);
  const auto backend =
      make_cuda_backend({.attention = GpuAttention::flash_wgmma, .precision = Precision::bf16});
  constexpr std::int64_t kC = 8 * kHeads;
  const auto random = [&](unsigned stream, std::int64_t channels) {
    return to_tensor(*backend, DType::bf16, {1, kT, channels}, random_values(1, stream, kT * channels));
  };
  const Tensor qkv = random(0, 3 * kC), dout = random(1, kC);
  const Tensor out = backend->allocate(DType::bf16, {1, kT, kC});
  const Tensor lse = backend->allocate(DType::f32, {1, kHeads, kT});
  const Tensor dqkv = backend->allocate(DType::bf16, {1, kT, 3 * kC});
  const Dropout dropout;
  backend->run(AttentionForward{out, lse, qkv, kHeads, 0.3, dropout});
  backend->run(AttentionBackward{{dqkv, GradMode::overwrite}, dout, out, lse, qkv, kHeads, 0.3, dropout});
  return {to_values(*backend, out), to_values(*backend, lse), to_values(*backend, dqkv)};
}

TEST(EmulatedAttention, HasTheSameBitsOnAnyNumberOfMultiprocessors) {
  const Results one = attention_on(1);
  for (const int multiprocessors : {2, 3, 7, 16})
    EXPECT_EQ(attention_on(multiprocessors) == one, true) << multiprocessors;
}

}  // namespace
}  // namespace stagegpt::test
