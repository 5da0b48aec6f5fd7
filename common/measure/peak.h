// What MFU is a share of: a peak that somebody names or, where nobody does, the machine's fastest product of
// square matrices.
#pragma once

#include <cstdint>
#include <string>

#include "common/backend/backend.h"

namespace stagegpt {

struct Peak {
  double flops_per_second = 0;
  std::string name;  // "measured GEMM 2048", by the matrices' rows; "NVIDIA H200, TF32, data sheet"
};

// How a peak is measured.
struct GemmEffort {
  std::int64_t smallest = 256;  // n; then twice as much, and so on
  double long_enough = 0.05;    // seconds of one product: no larger ones are tried then
  int tries = 5;                // for each size, at least
  double seconds = 0;           // so too
};
// Less than a second where matrix products are fast, some seconds where they are plain loops.
inline constexpr GemmEffort kThoroughGemm;
// Some 30 ms and 7 MB. Smaller products would not do: on a busy machine threads that wait for each other
// make them many times slower.
inline constexpr GemmEffort kQuickGemm{.smallest = 768, .long_enough = 0.001, .tries = 3, .seconds = 0.025};

// The best product in f32 through the backend.
Peak measure_peak(Backend& backend, GemmEffort effort);

}  // namespace stagegpt
