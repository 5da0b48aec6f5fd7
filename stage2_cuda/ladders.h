// The ladders that stage2_bench --ladder climbs.
#pragma once

#include <optional>
#include <string_view>

#include "common/backend/backend.h"
#include "stage2_cuda/gemm.h"
#include "stage2_cuda/ladder.h"

namespace stagegpt::gpu {

struct LadderOptions {
  bool large = true;                     // sizes of GPT-2 124M, on a GPU; else such as can be emulated
  Precision precision = Precision::f32;  // of the library's products
  std::optional<Peak> peak;              // the bound of products; measured where there is none
};

// `name` is layernorm or matmul. The backend, whose memory it uses, must outlive it.
Ladder make_ladder(std::string_view name, Backend& backend, const LadderOptions& options);

}  // namespace stagegpt::gpu
