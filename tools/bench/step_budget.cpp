#include "tools/bench/step_budget.h"

#include <algorithm>

#include "common/backend/op_observer.h"
#include "common/backend/planning_backend.h"
#include "common/comm/self_communicator.h"
#include "common/model/gpt2.h"

namespace stagegpt {
namespace {

class WorkCounter final : public OpObserver {
 public:
  using OpObserver::OpObserver;

  void around(const OpCall& op, const std::function<void()>& kernel) override {
    kernel();
    auto entry = std::ranges::find(ops, op.name, &OpBudget::name);
    if (entry == ops.end()) entry = ops.insert(ops.end(), OpBudget{op.name});
    ++entry->calls;
    entry->work.flops += op.work.flops;
    entry->work.bytes += op.work.bytes;
  }

  std::vector<OpBudget> ops;
};

}  // namespace

double OpBudget::bound_seconds(const PeakRates& peak) const {
  return std::max(work.flops / peak.flops_per_second, work.bytes / peak.bytes_per_second);
}

std::vector<OpBudget> step_budget(const Gpt2Config& config, const TrainerConfig& trainer_config,
                                  std::int64_t T, DType activations, bool fused) {
  const std::unique_ptr<Backend> backend = make_planning_backend();
  backend->set_fused(fused);
  SingleProcess group;
  SelfCommunicator communicator(group);
  NoGradientSync sync;
  Gpt2 model(*backend, config, DType::f32, /*arena_parts=*/1, Purpose::training, activations);
  const DataLoader data(std::vector<std::int32_t>(static_cast<std::size_t>(T) + 1), T, trainer_config.seed);
  Trainer trainer(*backend, communicator, sync, model, data, trainer_config);
  WorkCounter counter(*backend);
  trainer.step();
  return counter.ops;
}

}  // namespace stagegpt
