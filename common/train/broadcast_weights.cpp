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

// Of ranks that have all weights now.
void require_same_weights(Communicator& communicator, Backend& backend, const Parameters& parameters,
                          const char* after) {
  try {
    require_same(communicator.group(),
                 {{concat("weights, after their ", after), hash_of(backend, parameters.weights())}});
  } catch (const AgreedUserError& error) {
    throw AgreedFailure(error.what());  // no user is at fault
  }
}

}  // namespace

void draw_weights(Communicator& communicator, Backend& backend, Parameters& parameters, std::uint64_t seed,
                  int threads) {
  const std::int64_t slice = parameters.weights().numel() / communicator.size();
  const std::int64_t begin = communicator.rank() * slice;
  agree(communicator.group(), [&] { parameters.initialize(seed, threads, {begin, begin + slice}); });
  if (communicator.size() == 1) return;
  communicator.all_gather(parameters.weights())->wait();
  require_same_weights(communicator, backend, parameters, "exchange");
}

void broadcast_weights(Communicator& communicator, Backend& backend, Parameters& parameters) {
  if (communicator.size() == 1) return;
  communicator.broadcast(parameters.weights(), 0);
  require_same_weights(communicator, backend, parameters, "broadcast");
}

}  // namespace stagegpt
