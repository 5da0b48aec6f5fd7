// The flags of a stage that computes on the CPU, and the backend that they select.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "common/app/command_line.h"
#include "stage0_serial/cpu_backend.h"
#include "stage0_serial/kernels/packed_kernels.h"

namespace stagegpt {

class CpuFlags {
 public:
  void add(CommandLine& command_line, const std::string& threads_help);

  // --threads, or else OMP_NUM_THREADS, or else the cores of this machine divided by the number of processes
  // on it; 1 for plain loops.
  int threads(int processes) const;
  // Throws UserError if plain loops are to have threads or another GEMM, or if bf16 has kernels in f32 alone.
  std::unique_ptr<Backend> make_backend(int threads) const;
  // bf16: mixed precision. TF32 is that of GPUs: a run that began in it goes on in f32.
  DType activations() const { return precision_ == "bf16" ? DType::bf16 : DType::f32; }
  // Whether products round their factors to bf16.
  bool rounds_to_bf16() const { return matmul() == CpuMatmul::packed_bf16; }
  // That bf16 is slow with these kernels; empty if it is not, or not asked for.
  std::string warning(const PackedKernels& kernels = packed_kernels(Factors::bf16)) const;
  // Prints that warning, and one of threads that share cores, where this process is the only one.
  void warn(int threads) const;
  // One line for the user.
  std::string description(int threads) const;

 private:
  bool is_naive() const { return kernels_ == "naive"; }
  CpuMatmul matmul() const;

  std::optional<std::int64_t> threads_;
  std::string kernels_ = "vectorised";
  std::string matmul_ = "packed";
  std::string precision_ = "f32";
};

// That the threads of a process share the cores that it may use; empty if each has one of its own.
std::string warning_of_shared_cores(int threads, int cores);

}  // namespace stagegpt
