#include "common/train/training_run_config.h"

#include <algorithm>

namespace stagegpt {

WindowSample validation_sample(std::int64_t tokens, std::int64_t seq_len, const TrainingRunConfig& config) {
  const auto windows_of_a_step =
      static_cast<double>(config.trainer.batch_size) * static_cast<double>(config.trainer.grad_accumulation);
  // A checkpoint needs a validation loss too.
  const auto steps = static_cast<double>(std::min(config.eval_every, config.checkpoint_every));
  return validation_sample(tokens, seq_len, config.eval_tokens, steps * windows_of_a_step);
}

}  // namespace stagegpt
