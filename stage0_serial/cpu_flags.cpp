#include "stage0_serial/cpu_flags.h"

#include <omp.h>

#include <algorithm>
#include <iostream>

#include "common/base/error.h"
#include "common/system/openmp_environment.h"
#include "stage0_serial/blas/openblas.h"
#include "stage0_serial/kernels/packed_kernels.h"
#include "stage0_serial/naive_backend.h"

namespace stagegpt {

void CpuFlags::add(CommandLine& command_line, const std::string& threads_help) {
  command_line.integer("--threads", threads_, 1, 1024, threads_help);
  command_line.allow_another_value_per_rank("--threads");
  command_line.choice(
      "--cpu-kernels", kernels_, {"vectorised", "naive"},
      "kernels of all ops; naive: the plain loops with which the tests compare all others, on one "
      "thread, with matrix products of their own");
  command_line.choice(
      "--cpu-matmul", matmul_, kCpuMatmulNames,
      "implementation of matrix multiplication (GEMM); packed-bf16: factors rounded to bf16, except "
      "where each text has one token; faster where the processor multiplies bf16");
  command_line.choice(
      "--precision", precision_, {"f32", "tf32", "bf16"},
      "f32; tf32: of GPUs, here as f32; bf16: mixed precision, activations and weights in bf16, "
      "sums in f32, faster where the processor multiplies bf16");
}

// In mixed precision the factors are bf16 already, and `packed` multiplies them.
CpuMatmul CpuFlags::matmul() const {
  return activations() == DType::bf16 ? CpuMatmul::packed_bf16 : chosen<CpuMatmul>(kCpuMatmulNames, matmul_);
}

int CpuFlags::threads(int processes) const {
  if (is_naive()) return 1;
  if (threads_) return static_cast<int>(*threads_);
  return threads_of_environment().value_or(std::max(1, omp_get_num_procs() / processes));
}

std::unique_ptr<Backend> CpuFlags::make_backend(int threads) const {
  if (is_naive()) {
    if (activations() == DType::bf16)
      user_error("--cpu-kernels naive: computes in f32, not --precision bf16");
    if (threads_.value_or(1) > 1) user_error("--cpu-kernels naive: has one thread, not ", *threads_);
    if (matmul_ != "packed")
      user_error("--cpu-kernels naive: has matrix products of its own, not --cpu-matmul ", matmul_);
    return make_naive_backend();
  }
  if (activations() == DType::bf16 && matmul_ != "packed" && matmul_ != "packed-bf16") {
    user_error("--precision: bf16 needs --cpu-matmul packed, got \"", matmul_, "\", which computes in f32");
  }
  return make_cpu_backend(threads, matmul());
}

std::string CpuFlags::warning(const PackedKernels& kernels) const {
  if (activations() != DType::bf16 || kernels.multiplies_bf16()) return "";
  return "warning: --precision: bf16 is slow here: the processor does not multiply bf16, and converts it to "
         "f32";
}

void CpuFlags::warn(int threads) const {
  for (const std::string& warning :
       {warning_of_shared_cores(threads, omp_get_num_procs()), this->warning()}) {
    if (!warning.empty()) std::cerr << warning << '\n';
  }
}

std::string CpuFlags::description(int threads) const {
  if (is_naive()) return "CPU, 1 thread, naive kernels";
  std::string matmul = matmul_ + " matmul";
  if (rounds_to_bf16()) {
    matmul += concat(" (", packed_kernels(Factors::bf16).name, ")");
  } else if (matmul_ == "packed") {
    matmul += concat(" (", packed_kernels(Factors::f32).name, ")");
  }
  if (matmul_ == "blas") matmul = OpenBlas::instance().description();
  return concat("CPU, ", threads, threads == 1 ? " thread, " : " threads, ",
                activations() == DType::bf16 ? "bf16, " : "", matmul);
}

std::string warning_of_shared_cores(int threads, int cores) {
  if (threads <= cores) return "";
  return concat("warning: ", threads, " threads share ", cores, cores == 1 ? " core" : " cores",
                "; use fewer --threads");
}

}  // namespace stagegpt
