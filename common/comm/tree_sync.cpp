#include "common/comm/tree_sync.h"

#include <algorithm>

namespace stagegpt {

void TreeSync::finish(Parameters& parameters) {
  constexpr std::int64_t kChunk = 1 << 16;  // elements: small enough to be added while they are in the cache
  const Tensor& grads = parameters.grads();
  if (communicator_.size() == 1) return;
  const Tensor received = backend_.allocate(grads.dtype(), {kChunk});
  for (int distance = 1; distance < communicator_.size(); distance *= 2) {
    clock_.start(grads);
    const int partner = communicator_.rank() ^ distance;
    for (std::int64_t begin = 0; begin < grads.numel(); begin += kChunk) {
      const Tensor own = grads.slice(begin, {std::min(kChunk, grads.numel() - begin)});
      const Tensor other = received.slice(0, own.shape());
      communicator_.exchange(own, other, partner);
      backend_.add(own, own, other);
    }
  }
  clock_.stop();
}

}  // namespace stagegpt
