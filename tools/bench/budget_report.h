// What stageN_bench --budget prints.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/base/json_fwd.h"
#include "tools/bench/step_budget.h"

namespace stagegpt {

// The step whose work was counted.
struct BudgetSubject {
  std::string model;
  std::int64_t batch_size = 0, seq_len = 0, tokens = 0;
  std::optional<PeakRates> peak;  // bounds are printed if it is given
};

Json budget_json(const BudgetSubject& subject, const std::vector<OpBudget>& ops);
// Prints the same as a table.
void print_budget_table(const BudgetSubject& subject, const std::vector<OpBudget>& ops);

}  // namespace stagegpt
