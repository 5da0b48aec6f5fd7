// Instruction sets of the processor that the program runs on. The compiler may have built for an older one.
#pragma once

namespace stagegpt {

// AVX-512 with its extensions F, DQ, BW and VL, which all processors with AVX-512 but the Xeon Phi have.
bool processor_has_avx512();
// AVX-512 as above, with its extension BF16.
bool processor_has_avx512_bf16();
// AVX2 with fused multiply-add.
bool processor_has_avx2();

}  // namespace stagegpt
