// Compiled for AVX2 with fused multiply-add (CMakeLists.txt). A panel of 256 × 24 floats, 24 KiB, stays in
// the first-level cache.
#include "common/system/instruction_sets.h"
#include "stage0_serial/kernels/packed_tiles.h"

namespace stagegpt {

extern constinit const PackedKernels kAvx2Kernels =
    packed_kernels_for<F32Words>("AVX2", Factors::f32, processor_has_avx2, 256);
extern constinit const PackedKernels kAvx2RoundingKernels = packed_kernels_for<RoundedWords>(
    "AVX2, rounding to bf16: no faster than f32", Factors::bf16, processor_has_avx2, 256);

}  // namespace stagegpt
