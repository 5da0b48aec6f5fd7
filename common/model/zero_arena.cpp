#include "common/model/zero_arena.h"

#include <algorithm>

#include "common/system/stop_signals.h"

namespace stagegpt {

Tensor zero_arena(Backend& backend, DType dtype, std::int64_t numel) {
  constexpr std::int64_t kFilled = std::int64_t{1} << 26;  // elements in a piece
  const Tensor arena = backend.allocate(dtype, {numel});
  for (std::int64_t begin = 0; begin < numel; begin += kFilled) {
    StopSignals::throw_if_requested();
    backend.fill(arena.slice(begin, {std::min(kFilled, numel - begin)}), 0);
  }
  return arena;
}

}  // namespace stagegpt
