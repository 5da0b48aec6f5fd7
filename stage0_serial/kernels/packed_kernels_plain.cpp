// Compiled for any processor of its kind (CMakeLists.txt).
#include "stage0_serial/kernels/packed_tiles.h"

namespace stagegpt {

// A panel of 512 × 8 floats, 16 KiB, stays in the first-level cache.
extern constinit const PackedKernels kPlainKernels = packed_kernels_for(
    "128-bit vectors", [] { return true; }, 512);

}  // namespace stagegpt
