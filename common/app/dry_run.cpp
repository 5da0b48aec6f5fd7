#include "common/app/dry_run.h"

#include <algorithm>
#include <cstdio>
#include <iostream>

#include "common/base/grouped.h"
#include "common/base/json.h"
#include "common/comm/agreement.h"
#include "common/io/status_line.h"
#include "common/model/flops.h"

namespace stagegpt {
namespace {

// What is available to the rank that has least; nothing where a rank does not know.
std::optional<AvailableMemory> least_available(const TensorMemory& memory, RankGroup& group) {
  constexpr double kUnknown = -1;
  std::optional<AvailableMemory> own = available_memory(memory, free_memory());
  const double least = std::ranges::min(gather(group, own ? own->bytes : kUnknown));
  if (least < 0) return std::nullopt;
  own->bytes = least;
  return own;
}

// "0.35 s", "1:05 (min:s)", "12:00:00 (h:min:s)".
std::string duration(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2g s", seconds);
  if (seconds < 59.5) return text;
  return concat(clock_time(seconds), seconds < 3599.5 ? " (min:s)" : " (h:min:s)");
}

}  // namespace

void print_plan(const TrainingMemory& training, RankGroup& group, const std::function<double()>& peak,
                bool json) {
  const Gpt2Config& config = training.config;
  const TrainerConfig& trainer = training.trainer;
  const ParameterTable table = gpt2_parameter_table(config);
  const std::int64_t T = training.T, parameters = table.numel();
  // As double: settings may multiply to more than 64 bits hold.
  const double tokens =
      static_cast<double>(trainer.batch_size) * static_cast<double>(trainer.grad_accumulation * T);
  const double total_tokens = tokens * static_cast<double>(trainer.schedule.steps);
  const double flops = flops_per_token(config, parameters, T);
  const double total_flops = flops * total_tokens;
  const int ranks = training.all_ranks();
  const MemoryPlan memory = plan_memory(training);
  const double needed = needed_memory(training.memory, memory.total(), memory.free_blocks);
  const std::optional<AvailableMemory> available = least_available(training.memory, group);
  const bool fits = !available || needed <= available->bytes;
  const double flops_per_second = fits && config.frozen.empty() ? peak() : 0,
               seconds = total_flops / flops_per_second;
  if (json) {
    const Json plan = {{"parameters", parameters},
                       {"trained_parameters", table.trained_numel()},
                       {"tokens_per_step", tokens},
                       {"flops_per_token", flops},
                       {"total_flops", total_flops},
                       {"peak_flops_per_second", flops_per_second > 0 ? Json(flops_per_second) : Json()},
                       {"seconds_at_peak", flops_per_second > 0 ? Json(seconds) : Json()},
                       {"ranks", ranks},
                       {"memory_bytes",
                        {{"weights", memory.weights},
                         {"gradients", memory.gradients},
                         {"moments", memory.moments},
                         {"activations", memory.activations},
                         {"total", memory.total()}}},
                       {"needed_bytes", needed},
                       {"available_bytes", available ? Json(available->bytes) : Json()},
                       {"fits", available ? Json(fits) : Json()}};
    std::cout << json_text(plan);
    return;
  }
  const std::string trained =
      config.frozen.empty() ? "" : concat(", ", grouped(table.trained_numel()), " of them trained");
  std::printf("parameters  %s%s\ntokens      %s a step, %s in all\nFLOPs       %.3g a token, %.3g in all\n",
              grouped(parameters).c_str(), trained.c_str(), grouped(tokens).c_str(),
              grouped(total_tokens).c_str(), flops, total_flops);
  if (flops_per_second > 0) {
    std::printf("time        at least %s: training alone, at the peak of %.3g FLOP/s\n",
                duration(seconds).c_str(), flops_per_second);
  }
  std::printf("memory of %s, in MiB\n", ranks == 1 ? "the process" : "each rank");
  const auto row = [](const char* kind, auto bytes, const std::string& note = "") {
    std::printf("  %-12s%12s%s\n", kind, grouped(static_cast<double>(bytes) / (1 << 20), 1).c_str(),
                note.c_str());
  };
  // What a rank holds of a divided model has no simple formula.
  const double alone = static_cast<double>(parameters) * sizeof(float) / (1 << 20);
  row("weights", memory.weights,
      training.tensor_ranks * training.stages > 1 || training.activations != DType::f32
          ? ""
          : concat("  with padding; the parameters alone take ", grouped(alone, 1)));
  row("gradients", memory.gradients);
  row("moments", memory.moments);
  row("activations", memory.activations);
  row("total", memory.total());
  row("needed", needed, training.memory.device_bytes ? "" : "  with the program, an estimate");
  if (!available) return;
  row("available", available->bytes, "  " + available->where);
  std::printf("fits        %s\n", fits ? "yes" : concat("no; ", advice(training, available->bytes)).c_str());
}

}  // namespace stagegpt
