#include "common/train/memory_plan.h"

#include <algorithm>

#include "common/backend/planning_backend.h"

namespace stagegpt {
namespace {

// Rank 0 among ranks that are only imagined: nothing is sent to them.
class ImaginedRanks final : public Communicator {
 public:
  explicit ImaginedRanks(int size) : size_(size) {}
  int rank() const override { return 0; }
  int size() const override { return size_; }
  void barrier() override {}
  void broadcast(const Tensor&, int) override {}
  std::unique_ptr<Pending> all_reduce(const Tensor&) override { return std::make_unique<Done>(); }
  std::unique_ptr<Pending> reduce_scatter(const Tensor&) override { return std::make_unique<Done>(); }
  std::unique_ptr<Pending> all_gather(const Tensor&) override { return std::make_unique<Done>(); }

 private:
  struct Done final : Pending {
    void wait() override {}
  };
  int size_;
};

// The plan of two steps, the second of which finds what the first has left.
MemoryPlan plan_two_steps(const Gpt2Config& config, const TrainerConfig& trainer_config, std::int64_t T,
                          int ranks) {
  const std::unique_ptr<Backend> backend = make_planning_backend();
  ImaginedRanks communicator(ranks);
  NoGradientSync sync;
  Gpt2 model(*backend, config, DType::f32, ranks);
  const std::size_t model_bytes = backend->memory_stats().bytes_in_use;
  const DataLoader data(std::vector<std::int32_t>(static_cast<std::size_t>(T) + 1), T, trainer_config.seed);
  Trainer trainer(*backend, communicator, sync, model, data, trainer_config);

  MemoryPlan plan;
  plan.weights = plan.gradients = model_bytes / 2;  // two arenas of one size
  plan.moments = backend->memory_stats().bytes_in_use - model_bytes;
  for (int step = 0; step < 2; ++step) trainer.step();
  plan.activations = backend->memory_stats().peak_bytes_in_use - plan.total();
  return plan;
}

// For batches of which the ids alone would be much: what a sequence adds is always the same, but for how the
// allocator rounds it.
MemoryPlan plan_large_batch(const Gpt2Config& config, const TrainerConfig& trainer, std::int64_t T, int ranks,
                            std::int64_t small_batch) {
  TrainerConfig planned = trainer;
  planned.batch_size = small_batch;
  const MemoryPlan less = plan_two_steps(config, planned, T, ranks);
  planned.batch_size = 2 * small_batch;
  MemoryPlan plan = plan_two_steps(config, planned, T, ranks);
  const double added =
      static_cast<double>(plan.activations - less.activations) / static_cast<double>(small_batch);
  plan.activations +=
      static_cast<std::size_t>(added * static_cast<double>(trainer.batch_size - 2 * small_batch));
  return plan;
}

MemoryPlan plan_micro_step(const Gpt2Config& config, const TrainerConfig& trainer, std::int64_t T,
                           int ranks) {
  constexpr std::int64_t kManyTokens = std::int64_t{1} << 23;
  const std::int64_t small_batch = std::max<std::int64_t>(1, kManyTokens / T / ranks) * ranks;
  const bool is_large = trainer.batch_size > 4 * small_batch && trainer.batch_size % ranks == 0;
  return is_large ? plan_large_batch(config, trainer, T, ranks, small_batch)
                  : plan_two_steps(config, trainer, T, ranks);
}

}  // namespace

MemoryPlan plan_memory(const Gpt2Config& config, const TrainerConfig& trainer, std::int64_t T, int ranks) {
  TrainerConfig planned = trainer;
  planned.grad_accumulation = 1;
  MemoryPlan plan = plan_micro_step(config, planned, T, ranks);
  if (trainer.grad_accumulation == 1) return plan;
  // Every further micro-step adds the same, whatever the batch: it comes on top of the losses of those
  // before.
  planned.batch_size = ranks;
  const std::size_t one = plan_two_steps(config, planned, T, ranks).activations;
  planned.grad_accumulation = 2;
  const std::size_t added = plan_two_steps(config, planned, T, ranks).activations - one;
  plan.activations += added * static_cast<std::size_t>(trainer.grad_accumulation - 1);
  return plan;
}

}  // namespace stagegpt
