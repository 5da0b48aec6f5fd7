// The work of a training step, op by op: floating-point operations and bytes, counted and not measured. With
// the peak rates of a machine they bound the time of each op from below.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/backend/op.h"
#include "common/base/json_fwd.h"
#include "common/train/trainer.h"

namespace stagegpt {

// The peak rates of a machine.
struct PeakRates {
  double flops_per_second = 0, bytes_per_second = 0;
};

// All calls of one op in a step.
struct OpBudget {
  std::string name;
  std::int64_t calls = 0;
  Work work = {};

  // The time that the op takes at least: the longer one of computing and of moving bytes.
  double bound_seconds(const PeakRates& peak) const;
};

// The ops of one step in one process, in the order in which they are called first. Nothing is computed, and
// no tensor takes memory. `activations` is as for Gpt2; without `fused`, fused ops are sequences of primitive
// ones.
std::vector<OpBudget> step_budget(const Gpt2Config& config, const TrainerConfig& trainer, std::int64_t T,
                                  DType activations, bool fused);

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
