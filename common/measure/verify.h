// Compares the model with an external reference: logits, loss and all gradients. Then it records the losses
// of optimizer steps on the same batch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/checkpoint/llmc_files.h"
#include "common/optim/adamw.h"
#include "common/parallel/grid.h"

namespace stagegpt {

// Largest accepted relative L2 errors, in f32.
struct VerifyLimits {
  double logits = 2e-5;
  double loss = 1e-5;
  double gradient = 1e-4;
};

// The limits if GEMM rounds its operands to TF32, whose unit roundoff is 4.9e-4. Measured with rounding to
// nearest, on models of one and two layers: logits 5.7e-4, gradients 1.2e-3 at most. Tensor cores may
// truncate instead, which doubles the error, and errors grow with depth.
inline constexpr VerifyLimits kTf32Limits{.logits = 5e-3, .loss = 1e-3, .gradient = 1e-2};

// The limits where activations are bf16, whose unit roundoff is 3.9e-3, eight times TF32's.
inline constexpr VerifyLimits kBf16Limits{.logits = 4e-2, .loss = 8e-3, .gradient = 8e-2};

struct VerifyReport {
  struct Row {
    std::string name;
    Shape shape;
    double error = 0;
    double limit = 0;
    bool ok() const { return error <= limit; }  // false for NaN
  };

  Row logits;
  Row loss;
  std::vector<Row> gradients;  // in the parameters' order
  std::vector<double> losses;  // of each optimizer step, before its update

  bool passed() const;
};

struct VerifySettings {
  std::int64_t steps = 0;  // of the optimizer after the comparison, at a constant learning rate
  double learning_rate = 1e-4;
  AdamWConfig adamw = {};
  VerifyLimits limits = {};
  DType activations = DType::f32;  // as for Gpt2
};

// The ranks of one model compute the comparison together, and each has the whole report; data ranks each make
// the comparison of the whole batch. A collective call.
VerifyReport verify(Backend& backend, const Grid& grid, const ModelFile& model, const LlmcState& state,
                    const VerifySettings& settings);

}  // namespace stagegpt
