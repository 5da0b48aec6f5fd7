#include "common/model/flops.h"

namespace stagegpt {

double flops_per_token(const Gpt2Config& config, std::int64_t parameters, std::int64_t T,
                       AttentionFlops attention) {
  const double attended = static_cast<double>(T) * (attention == AttentionFlops::causal ? 0.5 : 1.0);
  const std::int64_t looked_up = config.tie_word_embeddings ? 0 : config.vocab_size * config.n_embd;
  return 6.0 * static_cast<double>(parameters - looked_up) + 12.0 * config.n_layer * config.n_embd * attended;
}

double step_flops(const Gpt2Config& config, std::int64_t parameters, std::int64_t tokens, std::int64_t T,
                  AttentionFlops attention) {
  return static_cast<double>(tokens) * flops_per_token(config, parameters, T, attention);
}

}  // namespace stagegpt
