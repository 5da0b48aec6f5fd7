// Compiled for AVX-512 (CMakeLists.txt). A panel of 384 × 48 floats, 72 KiB, is read from the second-level
// cache.
#include "common/system/instruction_sets.h"
#include "stage0_serial/kernels/packed_tiles.h"

namespace stagegpt {

extern constinit const PackedKernels kAvx512Kernels =
    packed_kernels_for<F32Words>("AVX-512", Factors::f32, processor_has_avx512, 384);
extern constinit const PackedKernels kAvx512RoundingKernels = packed_kernels_for<RoundedWords>(
    "AVX-512, rounding to bf16: no faster than f32", Factors::bf16, processor_has_avx512, 384);

}  // namespace stagegpt
