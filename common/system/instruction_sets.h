// Instruction sets of the processor that the program runs on. The compiler may have built for an older one.
#pragma once

namespace stagegpt {

// x86-64-v4: AVX-512 with its extensions F, BW, CD, DQ and VL, which all processors with AVX-512 but the Xeon
// Phi have.
bool processor_has_avx512();
// AVX-512 as above, with its extension BF16.
bool processor_has_avx512_bf16();
// Armv8's extension BF16.
bool processor_has_arm_bf16();
// x86-64-v3: AVX2, fused multiply-add and what came with them (BMI2, F16C, MOVBE).
bool processor_has_avx2();

}  // namespace stagegpt
