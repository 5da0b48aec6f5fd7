#include "common/comm/tree_sync.h"

#include <algorithm>
#include <chrono>

#include "common/base/seconds_since.h"

namespace stagegpt {

void TreeSync::finish(Parameters& parameters) {
  constexpr std::int64_t kChunk = 1 << 16;  // elements: added while they are in the processor's cache
  const auto start = std::chrono::steady_clock::now();
  const Tensor& grads = parameters.grads();
  report_ = {};
  if (communicator_.size() == 1) return;
  const Tensor received = backend_.allocate(grads.dtype(), {kChunk});
  for (int distance = 1; distance < communicator_.size(); distance *= 2) {
    const int partner = communicator_.rank() ^ distance;
    for (std::int64_t begin = 0; begin < grads.numel(); begin += kChunk) {
      const Tensor own = grads.slice(begin, {std::min(kChunk, grads.numel() - begin)});
      const Tensor other = received.slice(0, own.shape());
      communicator_.exchange(own, other, partner);
      backend_.add(own, own, other);
    }
    report_.bytes_reduced += static_cast<std::int64_t>(grads.bytes());
  }
  report_.seconds_under_way = seconds_since(start);
}

}  // namespace stagegpt
