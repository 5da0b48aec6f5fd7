// The ladders of stage2_bench --ladder.
#pragma once

#include <optional>
#include <string_view>

#include "common/backend/backend.h"
#include "stage2_cuda/gemm.h"
#include "stage2_cuda/ladder.h"

namespace stagegpt::gpu {

struct LadderOptions {
  bool large = true;  // sizes of GPT-2 124M, for a GPU; else sizes for the emulator
  // With bf16, matmul and attention have versions for inputs in bf16. TF32 is for the library's GEMM.
  Precision precision = Precision::f32;
  std::optional<Peak> peak;  // the bound of matmul and attention; measured if it is not given
};

// `name` is layernorm, matmul or attention. The backend must outlive the ladder, which uses its memory.
// Throws UserError if there is no such ladder in this precision.
Ladder make_ladder(std::string_view name, Backend& backend, const LadderOptions& options);

Ladder layernorm_ladder(Backend& backend, const LadderOptions& options);
Ladder matmul_ladder(Backend& backend, const LadderOptions& options);
Ladder attention_ladder(Backend& backend, const LadderOptions& options);

}  // namespace stagegpt::gpu
