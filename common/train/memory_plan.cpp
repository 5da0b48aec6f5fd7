#include "common/train/memory_plan.h"

#include <algorithm>

#include "common/backend/planning_backend.h"
#include "common/comm/self_communicator.h"
#include "common/model/kv_cache.h"
#include "common/parallel/divided_gpt2.h"
#include "common/train/evaluate.h"

namespace stagegpt {
namespace {

// A rank of a group whose other ranks do not exist: it sends nothing.
class PlannedRanks final : public RankGroup {
 public:
  explicit PlannedRanks(int size, int rank = 0) : size_(size), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void barrier() override {}
  void broadcast(std::span<std::byte>, int) override {}
  void all_gather(std::span<const std::byte>, std::span<std::byte> all) override {
    std::ranges::fill(all, std::byte(0));
  }
  void enter(const char*) override {}

 private:
  int size_, rank_;
};

// A synchronisation that sends nothing, and divides ownership as `like` does.
class PlannedSync final : public NoGradientSync {
 public:
  explicit PlannedSync(const GradientSync& like)
      : NoGradientSync({.communicates = false, .norm_in_blocks = like.traits().norm_in_blocks}),
        like_(like) {}
  ArenaParts owned(std::int64_t arena_size) const override { return like_.owned(arena_size); }

 private:
  const GradientSync& like_;
};

// The run to be planned.
struct Run {
  const Gpt2Config& config;
  std::int64_t T;
  int ranks;
  const GradientSync& sync;
  DType activations;
  int tensor_ranks;
  ModelStage stage;
};

// The ranks of such a run, with the part of the model that they hold.
struct Planned {
  explicit Planned(const Run& run)
      : world(run.ranks * run.tensor_ranks * run.stage.count),
        data(run.ranks),
        tensor(run.tensor_ranks),
        pipeline(run.stage.count, run.stage.index),
        model(run.tensor_ranks * run.stage.count),
        all(world) {}

  PlannedRanks world, data, tensor, pipeline, model;
  SelfCommunicator all;
  Grid grid{all, std::make_shared<SelfCommunicator>(data), std::make_shared<SelfCommunicator>(tensor),
            std::make_shared<SelfCommunicator>(pipeline), std::make_shared<SelfCommunicator>(model)};
};

// Bytes of a model without its gradients.
std::size_t bytes_of_weights(const Run& run) {
  const std::unique_ptr<Backend> backend = make_planning_backend();
  const Planned planned(run);
  const auto model = make_gpt2(*backend, run.config, planned.grid, Purpose::inference, run.activations);
  return backend->memory_stats().bytes_in_use;
}

// The plan of two steps; the second one reuses blocks that the first one has freed.
MemoryPlan plan_two_steps(const Run& run, const TrainerConfig& trainer_config) {
  const std::unique_ptr<Backend> backend = make_planning_backend();
  const Planned planned(run);
  PlannedSync sync(run.sync);
  const auto model = make_gpt2(*backend, run.config, planned.grid, Purpose::training, run.activations);
  const std::size_t model_bytes = backend->memory_stats().bytes_in_use;
  const DataLoader data(std::vector<std::int32_t>(static_cast<std::size_t>(run.T) + 1), run.T,
                        trainer_config.seed);
  Trainer trainer(*backend, planned.grid, sync, *model, data, trainer_config);

  MemoryPlan plan;
  plan.weights = bytes_of_weights(run);
  plan.gradients = model_bytes - plan.weights;
  plan.moments = backend->memory_stats().bytes_in_use - model_bytes;
  for (int step = 0; step < 2; ++step) trainer.step();
  const MemoryStats stats = backend->memory_stats();
  plan.activations = stats.peak_bytes_in_use - plan.total();
  plan.free_blocks = stats.bytes_reserved - stats.peak_bytes_in_use;
  return plan;
}

// For large batches, whose ids alone would need much memory: extrapolates linearly from two small batches.
// The memory per sequence is constant, except for the allocator's rounding.
MemoryPlan plan_large_batch(const Run& run, const TrainerConfig& trainer, std::int64_t small_batch) {
  TrainerConfig planned = trainer;
  planned.batch_size = small_batch;
  const MemoryPlan less = plan_two_steps(run, planned);
  planned.batch_size = 2 * small_batch;
  MemoryPlan plan = plan_two_steps(run, planned);
  const double times =
      static_cast<double>(trainer.batch_size - 2 * small_batch) / static_cast<double>(small_batch);
  const auto carry_on = [&](std::size_t MemoryPlan::*part) {
    const double added = static_cast<double>(plan.*part) - static_cast<double>(less.*part);
    plan.*part = static_cast<std::size_t>(std::max(0.0, static_cast<double>(plan.*part) + added * times));
  };
  carry_on(&MemoryPlan::activations);
  carry_on(&MemoryPlan::free_blocks);
  return plan;
}

MemoryPlan plan_micro_step(const Run& run, const TrainerConfig& trainer, std::int64_t sub_batches) {
  constexpr std::int64_t kManyTokens = std::int64_t{1} << 23;
  const std::int64_t small_batch = std::max<std::int64_t>(1, kManyTokens / run.T / sub_batches) * sub_batches;
  const bool is_large = trainer.batch_size > 4 * small_batch && trainer.batch_size % sub_batches == 0;
  return is_large ? plan_large_batch(run, trainer, small_batch) : plan_two_steps(run, trainer);
}

// The memory of one tensor, as the allocator rounds it.
std::size_t bytes_of_losses(std::int64_t passes) {
  const std::unique_ptr<Backend> backend = make_planning_backend();
  const Tensor losses = backend->allocate(DType::f32, {passes});
  return backend->memory_stats().bytes_in_use;
}

}  // namespace

MemoryPlan plan_memory(const Gpt2Config& config, const TrainerConfig& trainer, std::int64_t T, int ranks,
                       const GradientSync& sync, DType activations, int tensor_ranks, int stages) {
  const std::int64_t sub_batches =
      divide_step(trainer.batch_size, 1, /*rank=*/0, ranks, trainer.fixed_sub_batches()).sub_batches;
  TrainerConfig planned = trainer;
  // A pipeline has so many micro-steps in flight.
  planned.grad_accumulation = std::min<std::int64_t>(trainer.grad_accumulation, stages);
  MemoryPlan most;
  for (int stage = 0; stage < stages; ++stage) {
    const Run run{config, T, ranks, sync, activations, tensor_ranks, {stage, stages}};
    const MemoryPlan plan = plan_micro_step(run, planned, sub_batches);
    if (plan.total() > most.total()) most = plan;
  }
  // Further micro-steps use the same memory again, but each has a loss of its own.
  const std::int64_t passes = sub_batches / ranks;
  most.activations += bytes_of_losses(passes * trainer.grad_accumulation) -
                      bytes_of_losses(passes * planned.grad_accumulation);
  return most;
}

std::size_t plan_generation(const Gpt2Config& config, DType matrices) {
  const std::unique_ptr<Backend> backend = make_planning_backend();
  Gpt2 model(*backend, config, DType::f32, 1, Purpose::inference);
  if (matrices != DType::f32) model.narrow_matrices(matrices);
  KvCache cache(*backend, model);
  constexpr std::int32_t kToken = 0;
  model.next_logits(*backend, std::span(&kToken, 1), cache);
  return backend->memory_stats().peak_bytes_in_use;
}

std::size_t plan_evaluation(const Gpt2Config& config, std::int64_t B, std::int64_t T, DType activations,
                            DType matrices) {
  const std::unique_ptr<Backend> backend = make_planning_backend();
  Gpt2 model(*backend, config, DType::f32, 1, Purpose::inference, activations);
  if (matrices != DType::f32 && activations == DType::f32) model.narrow_matrices(matrices);
  PlannedRanks group(1);
  const TokenSequence tokens(std::vector<std::int32_t>(static_cast<std::size_t>(T) + 1));
  evaluate(group, *backend, model, tokens,
           {B,
            [=](std::int64_t) {
              return Window{0, T, T};
            }},
           {.batch_size = B});
  return backend->memory_stats().peak_bytes_in_use;
}

}  // namespace stagegpt
