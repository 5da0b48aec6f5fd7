#include "common/model/flops.h"

namespace stagegpt {

double flops_per_token(const Gpt2Config& config, std::int64_t parameters, std::int64_t T) {
  return 6.0 * static_cast<double>(parameters) +
         6.0 * config.n_layer * config.n_embd * static_cast<double>(T);
}

double step_flops(const Gpt2Config& config, std::int64_t parameters, std::int64_t tokens, std::int64_t T) {
  return static_cast<double>(tokens) * flops_per_token(config, parameters, T);
}

}  // namespace stagegpt
