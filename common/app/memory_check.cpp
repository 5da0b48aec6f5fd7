#include "common/app/memory_check.h"

#include <algorithm>
#include <cstdio>

#include "common/app/command_line.h"

namespace stagegpt {
namespace {

constexpr double kMebibyte = 1 << 20, kGibibyte = 1 << 30;
// What a process takes beside its tensors, as measured (bench/notes/checkpoints_and_memory.md).
constexpr double kProcessBytes = 128 * kMebibyte;

constexpr const char* kIgnore = "; --ignore-memory starts nevertheless";

bool fits(double needed, const std::optional<AvailableMemory>& available) {
  return !available || needed <= available->bytes;
}

// The batch size must be a multiple of this.
std::int64_t parts_of(const TrainingMemory& training) {
  return training.trainer.reproducible ? training.trainer.sub_batches : training.ranks;
}

TrainingMemory changed(TrainingMemory training, std::int64_t batch_size, Recompute recompute) {
  training.trainer.batch_size = batch_size;
  training.trainer.recompute = recompute;
  return training;
}

// Advice: the step in more micro-steps, of sequences that fit; nothing where even the fewest do not.
std::optional<std::string> smaller_batch_that_fits(TrainingMemory training, double available) {
  TrainerConfig& trainer = training.trainer;
  while (trainer.batch_size % 2 == 0 && trainer.batch_size / 2 % parts_of(training) == 0) {
    trainer.batch_size /= 2;
    trainer.grad_accumulation *= 2;
    const double needed = needed_memory(training);
    if (needed <= available) {
      return concat("--batch-size ", trainer.batch_size, " --grad-accumulation ", trainer.grad_accumulation,
                    ", the same step, takes ", memory_text(needed));
    }
  }
  return std::nullopt;
}

// Advice: the step with recomputation, and in more micro-steps if need be.
std::optional<std::string> recomputation_that_fits(const TrainingMemory& training, double available) {
  const TrainerConfig& trainer = training.trainer;
  if (trainer.recompute == Recompute::block) return std::nullopt;
  const TrainingMemory blocks = changed(training, trainer.batch_size, Recompute::block);
  const double needed = needed_memory(blocks);
  if (needed <= available) return concat("--recompute block, the same step, takes ", memory_text(needed));
  const auto batch = smaller_batch_that_fits(blocks, available);
  return batch ? std::optional("--recompute block " + *batch) : std::nullopt;
}

// Where no other division of the step fits.
std::string advice_for_another_step(const TrainingMemory& training, double available) {
  const std::int64_t least = parts_of(training);
  if (needed_memory(changed(training, least, training.trainer.recompute)) <= available)
    return "a smaller --batch-size takes less";
  const double needed = needed_memory(changed(training, least, Recompute::block));
  if (needed <= available) return "--recompute block with a smaller --batch-size takes less";
  return concat("even --recompute block --batch-size ", least, " takes ", memory_text(needed),
                "; a smaller --model or --block-size takes less");
}

}  // namespace

std::string advice(const TrainingMemory& training, double available) {
  if (const auto batch = smaller_batch_that_fits(training, available)) return *batch;
  if (const auto blocks = recomputation_that_fits(training, available)) return *blocks;
  std::string text = advice_for_another_step(training, available);
  const std::int64_t arena = gpt2_parameter_table(training.config).arena_size(training.ranks);
  const bool all_moments = total_size(training.sync.owned(arena)) == arena;
  const std::string& divides_moments = training.memory.divides_moments;
  if (!divides_moments.empty() && training.ranks > 1 && all_moments && !training.trainer.reproducible) {
    text += concat(", and ", divides_moments, ", which divides AdamW's moments among the ranks");
  }
  if (training.memory.host_ranks > 1) text += ", and fewer ranks on a node";
  return text;
}

std::string memory_text(double bytes) {
  char text[48];
  const bool large = bytes >= kGibibyte;
  std::snprintf(text, sizeof text, "%.1f %s", bytes / (large ? kGibibyte : kMebibyte), large ? "GiB" : "MiB");
  return text;
}

std::optional<AvailableMemory> available_memory(const TensorMemory& memory, const FreeMemory& host) {
  std::optional<AvailableMemory> least;
  const auto take = [&](std::optional<double> bytes, const std::string& where) {
    if (bytes && (!least || *bytes < least->bytes)) least = {*bytes, where};
  };
  if (memory.device_bytes) take(static_cast<double>(*memory.device_bytes), "on the device");
  if (!memory.on_host) return least;
  const std::string each = memory.host_ranks > 1 ? concat(", for each of ", memory.host_ranks, " ranks") : "";
  const auto shared = [&](std::optional<double> bytes) {
    return bytes ? std::optional(*bytes / memory.host_ranks) : bytes;
  };
  take(shared(host.machine), "on this machine" + each);
  take(shared(host.cgroup), "under the limit of this container or job" + each);
  // An emulated device has its addresses reserved already.
  if (!memory.device_bytes) take(host.address_space, "under `ulimit -v`");
  return least;
}

double needed_memory(const TensorMemory& memory, std::size_t tensor_bytes, std::size_t free_blocks) {
  // A device's allocator gives blocks back before it fails, and no program is there.
  if (memory.device_bytes) return static_cast<double>(tensor_bytes);
  return static_cast<double>(tensor_bytes + free_blocks) + kProcessBytes;
}

double needed_memory(const TrainingMemory& training) {
  const MemoryPlan plan = plan_memory(training);
  return needed_memory(training.memory, plan.total(), plan.free_blocks);
}

void require_training_memory(const TrainingMemory& training, const FreeMemory& host) {
  const auto available = available_memory(training.memory, host);
  const double needed = needed_memory(training);
  if (fits(needed, available)) return;
  user_error("--batch-size: training with ", training.trainer.batch_size, " sequences of ", training.T,
             " tokens takes ", memory_text(needed), training.all_ranks() > 1 ? " a rank" : "", ", and ",
             memory_text(available->bytes), " are available ", available->where, "; ",
             advice(training, available->bytes), kIgnore);
}

void require_generation_memory(const Gpt2Config& config, DType matrices, const TensorMemory& memory,
                               const FreeMemory& host) {
  const auto available = available_memory(memory, host);
  const double needed = needed_memory(memory, plan_generation(config, matrices));
  if (fits(needed, available)) return;
  user_error("--model: generation takes ", memory_text(needed), ", and ", memory_text(available->bytes),
             " are available ", available->where, "; a smaller model",
             matrices != DType::f32 ? ", or --weights f32, which needs no second copy while it loads," : "",
             " takes less", kIgnore);
}

std::int64_t texts_that_fit(std::int64_t texts, const Gpt2Config& config, DType matrices,
                            const TensorMemory& memory, const FreeMemory& host) {
  const auto available = available_memory(memory, host);
  const auto needed = [&] { return needed_memory(memory, plan_generation(config, matrices, texts)); };
  while (texts > 1 && !fits(needed(), available)) texts /= 2;
  return texts;
}

void require_evaluation_memory(const Gpt2Config& config, const EvaluationBatch& batch, DType activations,
                               DType matrices, const TensorMemory& memory, const FreeMemory& host) {
  const auto available = available_memory(memory, host);
  const double needed =
      needed_memory(memory, plan_evaluation(config, batch.B, batch.T, activations, matrices));
  if (fits(needed, available)) return;
  if (batch.B == 1 && batch.T == 1) {
    user_error("--model: an evaluation takes at least ", memory_text(needed), ", and ",
               memory_text(available->bytes), " are available ", available->where,
               "; a smaller model takes less", kIgnore);
  }
  const std::string flag = batch.B > 1 ? "--batch-size" : batch.shorter;
  user_error("--batch-size: evaluation in batches of ", batch.B, ' ', batch.rows, " of ", batch.T,
             " tokens takes ", memory_text(needed), ", and ", memory_text(available->bytes),
             " are available ", available->where, "; a smaller ", flag.empty() ? "" : flag + " or ",
             "model takes less", kIgnore);
}

void add_ignore_memory(CommandLine& command_line, bool& ignore) {
  command_line.toggle("--ignore-memory", ignore, "start even if more memory is needed than is available");
}

void add_adamw(CommandLine& command_line, AdamWConfig& adamw) {
  command_line.real("--weight-decay", adamw.weight_decay, kNotNegative, "weight decay of matrices");
  command_line.real("--beta1", adamw.beta1, kBelowOne, "AdamW's decay rate of the first moment");
  command_line.real("--beta2", adamw.beta2, kBelowOne, "AdamW's decay rate of the second moment");
  command_line.real("--eps", adamw.eps, kPositive,
                    "AdamW's epsilon, added to the square root of the second moment");
  command_line.real("--grad-clip", adamw.grad_clip, kNotNegative, "clip the gradient to this norm (0: off)");
}

void add_recompute(CommandLine& command_line, std::string& recompute) {
  command_line.choice("--recompute", recompute, {"none", "gelu", "block"},
                      "activations to compute again in the backward, which saves memory (gelu: the output of "
                      "the MLPs' activation; block: all inside the transformer blocks)");
}

}  // namespace stagegpt
