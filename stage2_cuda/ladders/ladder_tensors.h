// What all ladders need: sets of random inputs, and outputs that are compared with f64.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/backend/backend.h"
#include "stage2_cuda/ladders.h"

namespace stagegpt::gpu {

// Limits of the error of an output: of one in f32; of one in bf16, which is a sum in f32 that is rounded once
// (u = 2⁻⁸); of a product whose factors the library rounds to TF32.
inline constexpr double kF32Tolerance = 1e-5, kBf16Tolerance = 0x1p-8 + kF32Tolerance, kTf32Tolerance = 2e-3;

// Tensors of random numbers, uniform in [-0.5, 0.5), f32 or bf16. Each has other numbers.
class RandomInputs {
 public:
  explicit RandomInputs(Backend& backend) : backend_(backend) {}
  Tensor make(DType dtype, Shape shape);

 private:
  Backend& backend_;
  std::uint32_t made_ = 0;
};

// An output, and the expected values of some of its rows.
struct CheckedOutput {
  Tensor out;  // (rows, columns), written by a kernel
  std::int64_t columns = 0;
  std::vector<std::int64_t> rows;
  std::vector<double> values = {};  // (rows.size(), columns)
};

// Rows to compute in f64, where all would take too long: about `most` of them, an odd number of rows apart,
// so that they have all places in a block of a kernel.
std::vector<std::int64_t> sampled_rows(std::int64_t rows, std::int64_t most);

// The number of sets of tensors, for Ladder::sets, if a set has `bytes`. Between two uses of a timed set,
// other sets of at least 256 MiB are read and written, so nothing of it is in the L2 cache, which has 50 MB
// on an H100. On the emulator there are two timed sets.
int number_of_sets(const LadderOptions& options, std::size_t bytes);

// A ladder without versions. `sets` holds the outputs of each set of tensors.
Ladder ladder_of(std::string name, Backend& backend, std::vector<std::vector<CheckedOutput>> sets);

// The peak of matrix products as the bound of a ladder that does `flop` floating-point operations.
void set_bound(Ladder& ladder, double flop, Backend& backend, const LadderOptions& options);

}  // namespace stagegpt::gpu
