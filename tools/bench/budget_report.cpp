#include "tools/bench/budget_report.h"

#include <cstdio>

#include "common/base/grouped.h"
#include "common/base/json.h"

namespace stagegpt {
namespace {

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
