#include "common/train/broadcast_weights.h"

#include <algorithm>

#include "common/comm/agreement.h"
#include "common/content_hash.h"

namespace stagegpt {
namespace {

std::string hash_of(Backend& backend, const Tensor& arena) {
  constexpr std::int64_t kElements = 1 << 20;  // at once, so that little memory is enough
  ContentHash hash;
  for (std::int64_t begin = 0; begin < arena.numel(); begin += kElements) {
    const std::int64_t size = std::min(kElements, arena.numel() - begin);
    const std::vector<float> elements = to_host<float>(backend, arena.slice(begin, {size}));
    hash.add(std::as_bytes(std::span(elements)));
  }
  return hash.hexadecimal();
}

}  // namespace

void broadcast_weights(Communicator& communicator, Backend& backend, Parameters& parameters) {
  if (communicator.size() == 1) return;
  communicator.broadcast(parameters.weights(), 0);
  try {
    require_same(communicator.group(),
                 {{"weights, after their broadcast", hash_of(backend, parameters.weights())}});
  } catch (const AgreedUserError& error) {
    throw AgreedFailure(error.what());  // no user is at fault
  }
}

}  // namespace stagegpt
