// Compiled for AVX2 with fused multiply-add (CMakeLists.txt).
#include "common/system/instruction_sets.h"
#include "stage0_serial/kernels/packed_tiles.h"

namespace stagegpt {

// A panel of 256 × 24 floats, 24 KiB, stays in the first-level cache.
extern constinit const PackedKernels kAvx2Kernels = packed_kernels_for("AVX2", processor_has_avx2, 256);

}  // namespace stagegpt
