#include "tools/bench/step_budget.h"

#include <algorithm>
#include <cstdio>

#include "common/backend/op_observer.h"
#include "common/backend/planning_backend.h"
#include "common/base/grouped.h"
#include "common/base/json.h"
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

struct Total {
  Work work = {};
  double seconds = 0;  // the sum of the ops' bounds
};

Total total_of(const BudgetSubject& subject, const std::vector<OpBudget>& ops) {
  Total total;
  for (const OpBudget& op : ops) {
    total.work.flops += op.work.flops;
    total.work.bytes += op.work.bytes;
    if (subject.peak) total.seconds += op.bound_seconds(*subject.peak);
  }
  return total;
}

void print_row(const std::string& name, const std::string& calls, const Work& work) {
  std::printf("%-28s %7s %12.3f %12.3f", name.c_str(), calls.c_str(), work.flops / 1e9, work.bytes / 1e9);
}

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

Json budget_json(const BudgetSubject& subject, const std::vector<OpBudget>& ops) {
  const auto bound_ms = [&](double seconds) { return subject.peak ? Json(1e3 * seconds) : Json(); };
  Json rows = Json::array();
  for (const OpBudget& op : ops) {
    rows.push_back({{"name", op.name},
                    {"calls", op.calls},
                    {"gflop", op.work.flops / 1e9},
                    {"gbytes", op.work.bytes / 1e9},
                    {"bound_ms", bound_ms(subject.peak ? op.bound_seconds(*subject.peak) : 0)}});
  }
  const Total total = total_of(subject, ops);
  return {{"model", subject.model},
          {"batch_size", subject.batch_size},
          {"seq_len", subject.seq_len},
          {"ops", rows},
          {"gflop", total.work.flops / 1e9},
          {"gbytes", total.work.bytes / 1e9},
          {"bound_ms", bound_ms(total.seconds)}};
}

void print_budget_table(const BudgetSubject& subject, const std::vector<OpBudget>& ops) {
  std::printf("%s, %s tokens a step in sequences of %lld; counted, not measured\n\n", subject.model.c_str(),
              grouped(subject.tokens).c_str(), static_cast<long long>(subject.seq_len));
  std::printf("%-28s %7s %12s %12s%s\n", "op", "calls", "GFLOP", "GB", subject.peak ? "   bound, ms" : "");
  for (const OpBudget& op : ops) {
    print_row(op.name, std::to_string(op.calls), op.work);
    if (subject.peak) std::printf(" %11.4f", 1e3 * op.bound_seconds(*subject.peak));
    std::printf("\n");
  }
  const Total total = total_of(subject, ops);
  print_row("all", "", total.work);
  if (subject.peak) {
    std::printf(" %11.4f\n\nat most %s tokens/s at %.1f TFLOP/s and %.1f GB/s", 1e3 * total.seconds,
                grouped(static_cast<double>(subject.tokens) / total.seconds).c_str(),
                subject.peak->flops_per_second / 1e12, subject.peak->bytes_per_second / 1e9);
  }
  std::printf("\n");
}

}  // namespace stagegpt
