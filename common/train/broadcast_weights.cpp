#include "common/train/broadcast_weights.h"

#include "common/comm/agreement.h"
#include "common/train/compare_weights.h"

namespace stagegpt {

void draw_weights(Communicator& communicator, Backend& backend, Parameters& parameters, std::uint64_t seed,
                  int threads) {
  const std::int64_t slice = parameters.weights().numel() / communicator.size();
  const std::int64_t begin = communicator.rank() * slice;
  agree(communicator.group(), [&] { parameters.initialize(seed, threads, {begin, begin + slice}); });
  if (communicator.size() == 1) return;
  communicator.all_gather(parameters.weights())->wait();
  require_same_weights(communicator.group(), backend, parameters, "after their exchange");
}

void broadcast_weights(Communicator& communicator, Backend& backend, Parameters& parameters) {
  if (communicator.size() == 1) return;
  communicator.broadcast(parameters.weights(), 0);
  require_same_weights(communicator.group(), backend, parameters, "after their broadcast");
}

}  // namespace stagegpt
