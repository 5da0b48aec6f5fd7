// Compiled for Armv8.2-A with its extension BF16 (CMakeLists.txt). One instruction, BFDOT, multiplies two
// pairs of bf16 elements in each lane, and adds both products to the lane's f32 sum. It treats subnormal
// numbers as zero.
#include "common/system/instruction_sets.h"
#include "stage0_serial/kernels/packed_tiles.h"

namespace stagegpt {
namespace {

struct Bf16Pairs : PairWords {
  using PairWords::word, PairWords::words_of_line;

  static float word(const float* line, std::int64_t stride, std::int64_t n) {
    const float late = n > 1 ? line[stride] : 0.0f;
    return vgetq_lane_f32(vreinterpretq_f32_bf16(vcvtq_low_bf16_f32(float32x4_t{*line, late})), 0);
  }
  static ShortVector words_of_line(const float* line) {
    const Rows words = {vreinterpretq_u16_bf16(halves(line)), vreinterpretq_u16_bf16(halves(line + 8))};
    return __builtin_bit_cast(ShortVector, words);
  }
  template <class Element>
  static ShortVector words_of_rows(const Element* row, std::int64_t stride, std::int64_t n) {
    const uint16x8_t early = vreinterpretq_u16_bf16(halves(row));
    const uint16x8_t late = n > 1 ? vreinterpretq_u16_bf16(halves(row + stride)) : vdupq_n_u16(0);
    const Rows words = {vzip1q_u16(early, late), vzip2q_u16(early, late)};
    return __builtin_bit_cast(ShortVector, words);
  }
  static FloatVector add_product(FloatVector sum, float a, FloatVector b) {
    return vbfdotq_f32(sum, vreinterpretq_bf16_f32(b), vreinterpretq_bf16_f32(vdupq_n_f32(a)));
  }

 private:
  using Rows = std::array<uint16x8_t, 2>;
  // Eight elements in bf16.
  static bfloat16x8_t halves(const float* row) {
    return vcvtq_high_bf16_f32(vcvtq_low_bf16_f32(vld1q_f32(row)), vld1q_f32(row + 4));
  }
  static bfloat16x8_t halves(const Bf16* row) { return vreinterpretq_bf16_u16(vld1q_u16(&row->bits)); }
};

}  // namespace

// A panel of 768 × 8 elements, 12 KiB, stays in the first-level cache.
extern constinit const PackedKernels kNeonBf16Kernels =
    packed_kernels_for<Bf16Pairs>("NEON BF16", Factors::bf16, processor_has_arm_bf16, 768);

}  // namespace stagegpt
