// The rate at which a backend reads memory.
#pragma once

#include <chrono>
#include <cstdint>

#include "common/backend/backend.h"
#include "common/backend/ops/sums.h"
#include "common/base/seconds_since.h"

namespace stagegpt {

// Reads a tensor that is larger than the processor's caches, once.
class MemoryRead {
 public:
  explicit MemoryRead(Backend& backend)
      : backend_(backend),
        large_(backend.zeros(DType::f32, {kElements})),
        sum_(backend.zeros(DType::f64, {1})) {}

  double bytes() const { return static_cast<double>(large_.bytes()); }
  double timed_pass() {
    const auto start = std::chrono::steady_clock::now();
    backend_.run(SquaredNorm{sum_, large_});
    backend_.synchronize();
    return seconds_since(start);
  }

 private:
  static constexpr std::int64_t kElements = std::int64_t{1} << 26;  // 256 MiB

  Backend& backend_;
  Tensor large_, sum_;
};

}  // namespace stagegpt
