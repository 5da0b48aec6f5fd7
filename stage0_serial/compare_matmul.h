// Times the packed GEMM and OpenBLAS on the products of GPT-2's linear layers, in turns on this machine. The
// default is `packed` everywhere, so that equal programs have equal bits; this tells where it is not the
// faster one.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/measure/machine_load.h"

namespace stagegpt {

// A product of a linear layer: "forward" (N,O), "dX" (N,I) or "dW" (O,I), for N rows, O outputs and I inputs.
struct ComparedProduct {
  std::string name;
  std::int64_t N = 0, O = 0, I = 0;
  double packed = 0, openblas = 0;  // FLOP/s

  double flops() const { return 2.0 * static_cast<double>(N * O * I); }
};

// The products of a block of a model with C channels, for few rows and for many. Throws std::runtime_error if
// OpenBLAS cannot be loaded.
std::vector<ComparedProduct> compare_matmuls(
    int threads, std::int64_t C, const std::function<void(std::int64_t done, std::int64_t total)>& progress);

// In which of these products OpenBLAS is faster, and whether it takes less time for all of them.
std::string verdict(const std::vector<ComparedProduct>& products);

void print_comparison(const std::vector<ComparedProduct>& products, int threads,
                      const std::optional<MachineLoad>& load, bool json);

}  // namespace stagegpt
