// Peak FLOP/s of GPUs, from their data sheets.
#pragma once

#include <optional>
#include <string_view>

#include "stage2_cuda/gemm.h"

namespace stagegpt::gpu {

// FLOP/s of a GEMM of dense matrices at the boost clock: in f32 on CUDA cores, or on tensor cores in TF32 or
// in bf16 with sums in f32. `device` is a name as nvidia-smi prints it. Empty for a device that is not in the
// table, for a part of a device (MIG), and for laptops, whose clocks depend on the manufacturer.
std::optional<double> data_sheet_flops(std::string_view device, Precision precision);

}  // namespace stagegpt::gpu
