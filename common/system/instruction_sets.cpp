#include "common/system/instruction_sets.h"

#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace stagegpt {

#if defined(__x86_64__)
bool processor_has_avx512() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("x86-64-v4");
}
bool processor_has_avx512_bf16() { return processor_has_avx512() && __builtin_cpu_supports("avx512bf16"); }
bool processor_has_avx2() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("x86-64-v3");
}
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
