// Number of floating-point operations of training.
#pragma once

#include <cstdint>

#include "common/model/gpt2.h"

namespace stagegpt {

// How many tokens the formula counts for attention in a sequence of T: `causal` counts the T/2 that a causal
// model attends to on average; `full` counts T, as many publications do.
enum class AttentionFlops : std::uint8_t { causal, full };

// Operations to train on one token in a sequence of T, with N the number of `parameters`: 6N + 6LCT (causal)
// or 6N + 12LCT (full; Chowdhery et al., arXiv:2204.02311, appendix B). The forward pass multiplies and adds
// once for each weight and, in each layer, 2C times for each token that is attended to (q·k and p·v). The
// backward pass does twice as much. Where the head is not tied to wte, N leaves out wte, which only looks
// rows up.
double flops_per_token(const Gpt2Config& config, std::int64_t parameters, std::int64_t T,
                       AttentionFlops attention = AttentionFlops::causal);

// FLOPs of one training step over `tokens` tokens.
double step_flops(const Gpt2Config& config, std::int64_t parameters, std::int64_t tokens, std::int64_t T,
                  AttentionFlops attention = AttentionFlops::causal);

}  // namespace stagegpt
