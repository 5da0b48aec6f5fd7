// Compiled for AVX-512 (CMakeLists.txt).
#include "common/system/instruction_sets.h"
#include "stage0_serial/kernels/packed_tiles.h"

namespace stagegpt {

// A panel of 384 × 48 floats, 72 KiB, is read from the second-level cache.
extern constinit const PackedKernels kAvx512Kernels =
    packed_kernels_for("AVX-512", processor_has_avx512, 384);

}  // namespace stagegpt
