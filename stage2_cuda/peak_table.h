// What makers say their devices can do.
#pragma once

#include <optional>
#include <string_view>

#include "stage2_cuda/gemm.h"

namespace stagegpt::gpu {

// FLOP/s of matrix products, of dense matrices, at the boost clock: in f32 on CUDA cores, or in TF32 on
// tensor cores. The device is named as nvidia-smi does. Nothing for one that is not in the table, for a part
// of a device (MIG), and for laptops, whose clocks are their makers' choice.
std::optional<double> data_sheet_flops(std::string_view device, Precision precision);

}  // namespace stagegpt::gpu
