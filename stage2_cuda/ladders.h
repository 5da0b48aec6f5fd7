// The ladders of stage2_bench --ladder.
#pragma once

#include <optional>
#include <string_view>

#include "common/backend/backend.h"
#include "stage2_cuda/gemm.h"
#include "stage2_cuda/ladder.h"

namespace stagegpt::gpu {

struct LadderOptions {
  bool large = true;                     // sizes of GPT-2 124M, for a GPU; else sizes for the emulator
  Precision precision = Precision::f32;  // of the library's GEMM
  std::optional<Peak> peak;              // the bound of GEMM; measured if it is not given
};

// `name` is layernorm or matmul. The backend must outlive the ladder, which uses its memory.
Ladder make_ladder(std::string_view name, Backend& backend, const LadderOptions& options);

}  // namespace stagegpt::gpu
