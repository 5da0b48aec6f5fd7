#include "common/app/dry_run.h"

#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "common/model/flops.h"
#include "common/train/memory_plan.h"

namespace stagegpt {

void print_plan(const Gpt2Config& config, const TrainerConfig& trainer, int ranks, const GradientSync& sync,
                bool json) {
  const std::int64_t T = config.block_size, parameters = gpt2_parameter_table(config).numel();
  // Numbers that no machine has need not fit 64 bits.
  const double tokens =
      static_cast<double>(trainer.batch_size) * static_cast<double>(trainer.grad_accumulation * T);
  const double total_tokens = tokens * static_cast<double>(trainer.schedule.steps);
  const double flops = flops_per_token(config, parameters, T);
  const double total_flops = flops * total_tokens;
  const MemoryPlan memory = plan_memory(config, trainer, T, ranks, sync);
  if (json) {
    const nlohmann::ordered_json plan = {{"parameters", parameters},
                                         {"tokens_per_step", tokens},
                                         {"flops_per_token", flops},
                                         {"total_flops", total_flops},
                                         {"ranks", ranks},
                                         {"memory_bytes",
                                          {{"weights", memory.weights},
                                           {"gradients", memory.gradients},
                                           {"moments", memory.moments},
                                           {"activations", memory.activations},
                                           {"total", memory.total()}}}};
    std::cout << plan.dump(2) << '\n';
    return;
  }
  std::printf(
      "parameters  %lld\ntokens      %.0f a step, %.0f in all\nFLOPs       %.3g a token, %.3g in all\n",
      static_cast<long long>(parameters), tokens, total_tokens, flops, total_flops);
  std::printf("memory of %s, in MiB\n", ranks == 1 ? "the process" : "each rank");
  const auto row = [](const char* kind, std::size_t bytes) {
    std::printf("  %-12s%12.1f\n", kind, static_cast<double>(bytes) / (1 << 20));
  };
  row("weights", memory.weights);
  row("gradients", memory.gradients);
  row("moments", memory.moments);
  row("activations", memory.activations);
  row("total", memory.total());
}

}  // namespace stagegpt
