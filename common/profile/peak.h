// The peak FLOP/s for MFU: from a data sheet or, if unknown, that of the machine's fastest GEMM of square
// matrices.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/backend/backend.h"
#include "common/comm/rank_group.h"

namespace stagegpt {

// Random operands for measuring GEMM: f32, uniform in [-0.5, 0.5), with period 65536; each `which` gives
// other numbers. Equal elements would be misleading: some processors compute faster with them.
Tensor random_tensor(Backend& backend, Shape shape, std::uint32_t which = 0);

struct Peak {
  double flops_per_second = 0;
  std::string name;  // "measured GEMM 2048" (rows); "NVIDIA H200, TF32, data sheet"
};

// How long and with which sizes a peak is measured.
struct GemmEffort {
  std::int64_t smallest = 256;  // smallest n; each further n is twice as large
  double long_enough = 0.05;    // seconds of one product, from which on no larger n is tried
  int tries = 5;                // minimum number of products per size
  double seconds = 0;           // minimum time per size
  // The most seconds that a product of the smallest size may take; `smallest` is halved until it does. 0: no
  // limit.
  double affordable = 0;
};
// Takes less than a second with a fast GEMM, several seconds with plain loops or on the emulator.
inline constexpr GemmEffort kThoroughGemm{.affordable = 0.5};
// Takes about 30 ms and 7 MB with a fast GEMM. Smaller products would be inaccurate: on a busy machine, the
// synchronisation of threads makes them many times slower. A slow GEMM gets them nevertheless.
inline constexpr GemmEffort kQuickGemm{
    .smallest = 768, .long_enough = 0.001, .tries = 3, .seconds = 0.025, .affordable = 0.1};

// The highest rate of f32 products on the backend.
Peak measure_peak(Backend& backend, GemmEffort effort);
// The FLOP/s of all ranks together: of each its data sheet's, or if there is none what it measures quickly.
double peak_of_all_ranks(RankGroup& group, Backend& backend, const std::optional<Peak>& known);

}  // namespace stagegpt
