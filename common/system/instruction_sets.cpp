#include "common/system/instruction_sets.h"

#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace stagegpt {

#if defined(__x86_64__)
// Of x86-64-v3 and v4, what every compiler knows by name. No processor has these parts and lacks the others.
bool processor_has_avx2() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
}
bool processor_has_avx512() {
  return processor_has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl");
}
bool processor_has_avx512_bf16() { return processor_has_avx512() && __builtin_cpu_supports("avx512bf16"); }
#else
bool processor_has_avx512() { return false; }
bool processor_has_avx512_bf16() { return false; }
bool processor_has_avx2() { return false; }
#endif
#if defined(__aarch64__)
bool processor_has_arm_bf16() { return (getauxval(AT_HWCAP2) & HWCAP2_BF16) != 0; }
#else
bool processor_has_arm_bf16() { return false; }
#endif

}  // namespace stagegpt
