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

// The ranks of a training, as a rank of a stage sees them.
struct PlannedGrid {
  PlannedGrid(const PlannedTraining& training, int stage)
      : world(training.all_ranks()),
        data(training.ranks),
        tensor(training.tensor_ranks),
        pipeline(training.stages, stage),
        model(training.tensor_ranks * training.stages),
        all(world) {}

  PlannedRanks world, data, tensor, pipeline, model;
  SelfCommunicator all;
  Grid grid{all, std::make_shared<SelfCommunicator>(data), std::make_shared<SelfCommunicator>(tensor),
            std::make_shared<SelfCommunicator>(pipeline), std::make_shared<SelfCommunicator>(model)};
};

// Bytes of a model without its gradients.
std::size_t bytes_of_weights(const PlannedTraining& training, const Grid& grid) {
  const std::unique_ptr<Backend> backend = make_planning_backend();
  const auto model = make_gpt2(*backend, training.config, grid, Purpose::inference, training.activations);
  return backend->memory_stats().bytes_in_use;
}

// The plan of two steps; the second one reuses blocks that the first one has freed.
MemoryPlan plan_two_steps(const PlannedTraining& training, int stage) {
  const std::unique_ptr<Backend> backend = make_planning_backend();
  const PlannedGrid planned(training, stage);
  PlannedSync sync(training.sync);
  const auto model =
      make_gpt2(*backend, training.config, planned.grid, Purpose::training, training.activations);
  const std::size_t model_bytes = backend->memory_stats().bytes_in_use;
  const DataLoader data(std::vector<std::int32_t>(static_cast<std::size_t>(training.T) + 1), training.T,
                        training.trainer.seed);
  Trainer trainer(*backend, planned.grid, sync, *model, data, training.trainer);

  MemoryPlan plan;
  plan.weights = bytes_of_weights(training, planned.grid);
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
MemoryPlan plan_large_batch(const PlannedTraining& training, int stage, std::int64_t small_batch) {
  PlannedTraining planned = training;
  planned.trainer.batch_size = small_batch;
  const MemoryPlan less = plan_two_steps(planned, stage);
  planned.trainer.batch_size = 2 * small_batch;
  MemoryPlan plan = plan_two_steps(planned, stage);
  const double times =
      static_cast<double>(training.trainer.batch_size - 2 * small_batch) / static_cast<double>(small_batch);
  const auto carry_on = [&](std::size_t MemoryPlan::*part) {
    const double added = static_cast<double>(plan.*part) - static_cast<double>(less.*part);
    plan.*part = static_cast<std::size_t>(std::max(0.0, static_cast<double>(plan.*part) + added * times));
  };
  carry_on(&MemoryPlan::activations);
  carry_on(&MemoryPlan::free_blocks);
  return plan;
}

MemoryPlan plan_micro_step(const PlannedTraining& training, int stage, std::int64_t sub_batches) {
  constexpr std::int64_t kManyTokens = std::int64_t{1} << 23;
  const std::int64_t small_batch =
      std::max<std::int64_t>(1, kManyTokens / training.T / sub_batches) * sub_batches;
  const std::int64_t batch = training.trainer.batch_size;
  const bool is_large = batch > 4 * small_batch && batch % sub_batches == 0;
  return is_large ? plan_large_batch(training, stage, small_batch) : plan_two_steps(training, stage);
}

// The memory of one tensor, as the allocator rounds it.
std::size_t bytes_of_losses(std::int64_t passes) {
  const std::unique_ptr<Backend> backend = make_planning_backend();
  const Tensor losses = backend->allocate(DType::f32, {passes});
  return backend->memory_stats().bytes_in_use;
}

}  // namespace

MemoryPlan plan_memory(const PlannedTraining& training) {
  const TrainerConfig& trainer = training.trainer;
  const std::int64_t sub_batches =
      divide_step(trainer.batch_size, 1, /*rank=*/0, training.ranks, trainer.fixed_sub_batches()).sub_batches;
  PlannedTraining planned = training;
  // A pipeline has so many micro-steps in flight.
  planned.trainer.grad_accumulation = std::min<std::int64_t>(trainer.grad_accumulation, training.stages);
  MemoryPlan most;
  for (int stage = 0; stage < training.stages; ++stage) {
    const MemoryPlan plan = plan_micro_step(planned, stage, sub_batches);
    if (plan.total() > most.total()) most = plan;
  }
  // Further micro-steps use the same memory again, but each has a loss of its own.
  const std::int64_t passes = sub_batches / training.ranks;
  most.activations += bytes_of_losses(passes * trainer.grad_accumulation) -
                      bytes_of_losses(passes * planned.trainer.grad_accumulation);
  return most;
}

std::size_t plan_generation(const Gpt2Config& config, DType matrices, std::int64_t texts) {
  const std::unique_ptr<Backend> backend = make_planning_backend();
  Gpt2 model(*backend, config, DType::f32, 1, Purpose::inference);
  if (matrices != DType::f32) model.narrow_matrices(matrices);
  KvCache cache(*backend, model, texts);
  const std::int64_t T = texts == 1 ? 1 : config.block_size;
  model.next_logits(*backend, std::vector<std::int32_t>(static_cast<std::size_t>(texts * T)), cache);
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
