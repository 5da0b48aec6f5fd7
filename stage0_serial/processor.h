// Instruction sets of the processor that the program runs on. The compiler may have built for an older one.
#pragma once

namespace stagegpt {

#if defined(__x86_64__)
// AVX-512 with its extensions F, DQ, BW and VL, which all processors with AVX-512 but the Xeon Phi have.
inline bool processor_has_avx512() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
}
// AVX2 with fused multiply-add.
inline bool processor_has_avx2() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
#else
constexpr bool processor_has_avx512() { return false; }
constexpr bool processor_has_avx2() { return false; }
#endif

}  // namespace stagegpt
