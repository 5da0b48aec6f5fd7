// Floating-point operations of training.
#pragma once

#include <cstdint>

#include "common/model/gpt2.h"

namespace stagegpt {

// How many of the T tokens attention is counted over: a causal model looks at T/2 of them on average, and
// many count all T.
enum class AttentionFlops : std::uint8_t { causal, full };

// Operations that training takes for one token in a sequence of T, with N the number of `parameters`: 6N +
// 6LCT (causal) or 6N + 12LCT (full; Chowdhery et al., arXiv:2204.02311, appendix B). Forward multiplies and
// adds once for each weight and, in each layer, 2C times for each token that is looked at (q·k and p·v);
// backward does twice as much.
double flops_per_token(const Gpt2Config& config, std::int64_t parameters, std::int64_t T,
                       AttentionFlops attention = AttentionFlops::causal);

// The same for one training step over `tokens` tokens.
double step_flops(const Gpt2Config& config, std::int64_t parameters, std::int64_t tokens, std::int64_t T,
                  AttentionFlops attention = AttentionFlops::causal);

}  // namespace stagegpt
