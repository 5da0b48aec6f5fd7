#include "common/data/windows.h"

#include <algorithm>

#include "common/base/error.h"

namespace stagegpt {

Windows sampled_windows(const WindowSample& sample, std::int64_t length) {
  return {sample.count, [=](std::int64_t i) { return Window{sample[i] * length, length, length}; }};
}

Windows strided_windows(std::int64_t tokens, std::int64_t length, std::int64_t stride) {
  check(tokens >= 2 && 1 <= stride && stride <= length, "windows: ", tokens, " tokens, length ", length,
        ", stride ", stride);
  const std::int64_t targets = tokens - 1, after_first = std::max<std::int64_t>(0, targets - length);
  const auto end = [=](std::int64_t i) { return std::min(i * stride + length, targets); };
  return {1 + (after_first + stride - 1) / stride, [=](std::int64_t i) {
            const std::int64_t first = i * stride;
            return Window{first, end(i) - first, end(i) - (i > 0 ? end(i - 1) : 0)};
          }};
}

}  // namespace stagegpt
