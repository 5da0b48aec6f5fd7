// The flags of a stage that computes on the CPU, and the backend that they select.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "common/app/command_line.h"
#include "stage0_serial/cpu_backend.h"

namespace stagegpt {

class CpuFlags {
 public:
  void add(CommandLine& command_line, const std::string& threads_help);

  // --threads, or else the cores of this machine divided by the number of processes on it; 1 for plain loops.
  int threads(int processes) const;
  // Throws UserError if plain loops are to have threads or another GEMM.
  std::unique_ptr<Backend> make_backend(int threads) const;
  // Whether products round their factors to bf16.
  bool rounds_to_bf16() const { return matmul_ == "packed-bf16"; }
  // One line for the user.
  std::string description(int threads) const;

 private:
  bool is_naive() const { return kernels_ == "naive"; }

  std::optional<std::int64_t> threads_;
  std::string kernels_ = "vectorised";
  std::string matmul_ = "packed";
};

}  // namespace stagegpt
