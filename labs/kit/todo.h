// lab::todo(), the body of a function that a lab leaves to the student. labs/kit/cutter.py adds this header
// to files with such functions.
#pragma once

#include <stdexcept>
#include <string>

#ifdef __CUDA_ARCH__
#include <cstdio>
#endif

// The parameters of a function without a body are unused, and so is what only the body called.
#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wunused-function"
#ifdef __NVCC__
#pragma nv_diag_suppress 177, 550
#endif

#ifdef __CUDACC__
#define STAGEGPT_LAB_ANYWHERE __host__ __device__
#else
#define STAGEGPT_LAB_ANYWHERE
#endif

namespace lab {

// On the host, throws std::logic_error: "4.1 Ring::sent is yours to write". In the emulator this becomes a
// KernelError that names kernel, block and thread. On a GPU, prints the same text and ends the kernel.
[[noreturn]] STAGEGPT_LAB_ANYWHERE constexpr void todo(const char* what) {
#ifdef __CUDA_ARCH__
  if (threadIdx.x == 0 && blockIdx.x == 0) printf("%s is yours to write\n", what);
  __trap();
#else
  // With an `if`, for functions that are constexpr.
  if (what != nullptr) throw std::logic_error(std::string(what) + " is yours to write");
  __builtin_unreachable();
#endif
}

}  // namespace lab
