// Writing text with a model.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "common/model/gpt2.h"

namespace stagegpt {

struct SamplingConfig {
  double temperature = 0.7;  // 0 takes the most probable token
  std::uint64_t seed = 1337;
};

// Draws `count` tokens after `prompt` (at least one token), each from the softmax of its logits divided by
// the temperature, and passes each to `emit`. The context is the last block_size tokens.
void generate(Backend& backend, const Gpt2& model, std::vector<std::int32_t> prompt, std::int64_t count,
              const SamplingConfig& config, const std::function<void(std::int32_t)>& emit);

}  // namespace stagegpt
