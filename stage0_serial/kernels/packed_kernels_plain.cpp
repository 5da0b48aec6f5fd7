// Compiled for any processor of its kind (CMakeLists.txt). A panel of 512 × 8 floats, 16 KiB, stays in the
// first-level cache.
#include "stage0_serial/kernels/packed_tiles.h"

namespace stagegpt {
namespace {

bool any_processor() { return true; }

}  // namespace

extern constinit const PackedKernels kPlainKernels =
    packed_kernels_for<F32Words>("128-bit vectors", Factors::f32, any_processor, 512);
extern constinit const PackedKernels kPlainRoundingKernels = packed_kernels_for<RoundedWords>(
    "128-bit vectors, rounding to bf16: no faster than f32", Factors::bf16, any_processor, 512);

}  // namespace stagegpt
