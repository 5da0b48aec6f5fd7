// Floating-point operations of training.
#pragma once

#include <cstdint>

#include "common/model/gpt2.h"

namespace stagegpt {

// Operations that training takes for one token in a sequence of T: 6N + 6LCT, N the number of `parameters`.
// Forward multiplies and adds once for each weight and, in each layer, 2C times for each earlier token (q·k
// and p·v), of which a causal model has T/2 on average; backward does twice as much. Chowdhery et al.,
// arXiv:2204.02311, appendix B, has 12LCT instead: it counts all T.
double flops_per_token(const Gpt2Config& config, std::int64_t parameters, std::int64_t T);

// The same for one training step over `tokens` tokens.
double step_flops(const Gpt2Config& config, std::int64_t parameters, std::int64_t tokens, std::int64_t T);

}  // namespace stagegpt
