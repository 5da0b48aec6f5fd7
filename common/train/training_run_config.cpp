#include "common/train/training_run_config.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace stagegpt {
namespace {

constexpr double kPassesOfTraining = 3;  // forward, and the gradients of inputs and of weights

double windows_of_a_step(const TrainerConfig& config) {
  return static_cast<double>(config.batch_size) * static_cast<double>(config.grad_accumulation);
}

// The number of validations in the first `steps` steps: every eval_every steps, at each checkpoint, and at
// the end.
std::int64_t validations_of(std::int64_t steps, const TrainingRunConfig& config) {
  const std::int64_t a = config.eval_every, b = config.checkpoint_every;
  if (a == 0) return 0;
  const bool only_at_the_end = steps == config.trainer.schedule.steps && steps % a != 0 && steps % b != 0;
  return steps / a + steps / b - steps / std::lcm(a, b) + (only_at_the_end ? 1 : 0);
}

}  // namespace

WindowSample validation_sample(std::int64_t tokens, std::int64_t seq_len, const TrainingRunConfig& config) {
  if (config.eval_every == 0) return {0, 0};
  return validation_sample(tokens, seq_len, config.eval_tokens);
}

std::int64_t usual_eval_tokens(const TrainingRunConfig& config, std::int64_t seq_len) {
  constexpr double kLeast = 64, kMost = kMostEvalTokens;
  const std::int64_t steps = config.trainer.schedule.steps;
  const double passes = kPassesOfTraining * windows_of_a_step(config.trainer) * static_cast<double>(steps);
  const auto validations = static_cast<double>(std::max<std::int64_t>(1, validations_of(steps, config)));
  const double windows = std::max(kLeast, std::floor(passes / (10 * validations)));
  return static_cast<std::int64_t>(std::min(kMost, windows * static_cast<double>(seq_len)));
}

double share_done(std::int64_t first, std::int64_t steps, const TrainingRunConfig& config,
                  std::int64_t windows) {
  const auto passes_until = [&](std::int64_t step) {
    return kPassesOfTraining * windows_of_a_step(config.trainer) * static_cast<double>(step) +
           static_cast<double>(windows) * static_cast<double>(validations_of(step, config));
  };
  const double before = passes_until(first);
  return (passes_until(steps) - before) / (passes_until(config.last_step) - before);
}

}  // namespace stagegpt
