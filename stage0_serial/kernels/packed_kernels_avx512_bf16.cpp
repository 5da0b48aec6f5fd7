// Compiled for AVX-512 with its extension BF16 (CMakeLists.txt). One instruction multiplies two pairs of bf16
// elements in each lane, and adds both products to the lane's f32 sum. It treats subnormal numbers as zero.
#include <immintrin.h>

#include "common/system/instruction_sets.h"
#include "stage0_serial/kernels/packed_tiles.h"

namespace stagegpt {
namespace {

struct Bf16Pairs : PairWords {
  using PairWords::word, PairWords::words_of_line;

  static float word(const float* line, std::int64_t stride, std::int64_t n) {
    const float late = n > 1 ? line[stride] : 0.0f;
    const __m128i halves = bits(_mm_cvtneps_pbh(_mm_set_ps(0, 0, late, *line)));
    return _mm_cvtss_f32(_mm_castsi128_ps(halves));
  }
  static ShortVector words_of_line(const float* line) {
    return __builtin_bit_cast(ShortVector, _mm512_cvtneps_pbh(_mm512_loadu_ps(line)));
  }
  static ShortVector words_of_rows(const float* row, std::int64_t stride, std::int64_t n) {
    const __m256i early = wide(row);
    const __m256i late = n > 1 ? wide(row + stride) : _mm256_setzero_si256();
    return __builtin_bit_cast(ShortVector, _mm256_or_si256(early, _mm256_slli_epi32(late, 16)));
  }
  static ShortVector words_of_rows(const Bf16* row, std::int64_t stride, std::int64_t n) {
    const __m256i early = wide(row), late = n > 1 ? wide(row + stride) : _mm256_setzero_si256();
    return __builtin_bit_cast(ShortVector, _mm256_or_si256(early, _mm256_slli_epi32(late, 16)));
  }
  static FloatVector add_product(FloatVector sum, float a, FloatVector b) {
    return _mm512_dpbf16_ps(sum, __builtin_bit_cast(__m512bh, _mm512_set1_ps(a)),
                            __builtin_bit_cast(__m512bh, b));
  }

 private:
  static __m128i bits(__m128bh halves) { return __builtin_bit_cast(__m128i, halves); }
  // The bf16 bits of 8 elements, each in the lower half of a word.
  static __m256i wide(const float* row) {
    return _mm256_cvtepu16_epi32(bits(_mm256_cvtneps_pbh(_mm256_loadu_ps(row))));
  }
  static __m256i wide(const Bf16* row) {
    return _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(row)));
  }
};

}  // namespace

// A panel of 768 × 48 elements, 72 KiB, is read from the second-level cache.
extern constinit const PackedKernels kAvx512Bf16Kernels =
    packed_kernels_for<Bf16Pairs>("AVX-512 BF16", Factors::bf16, processor_has_avx512_bf16, 768);

}  // namespace stagegpt
