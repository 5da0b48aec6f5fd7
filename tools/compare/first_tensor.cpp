#include "tools/compare/first_tensor.h"

#include <algorithm>

#include "common/base/error.h"
#include "common/logging/step_trace.h"
#include "tools/compare/divergence.h"

namespace stagegpt::compare {
namespace {

namespace fs = std::filesystem;

constexpr const char *kTrace = "--trace-steps", *kPurpose = "traced";

// All limits are 0 if the same bits are expected.
TraceLimits trace_limits(const Check& check, const Limits& limits) {
  if (check.kind == Check::Kind::bits)
    return {.computed = {.logits = 0, .loss = 0, .gradient = 0}, .weight = 0};
  TraceLimits loose;
  const double wider = std::max(1.0, limits.loss / loose.computed.loss);  // in a lower precision
  loose.computed.logits *= wider;
  loose.weight *= wider;
  loose.computed.loss = limits.loss;
  loose.computed.gradient = limits.grad_norm;
  return loose;
}

// Removes the traces of other steps; each is as large as the model.
void keep_step(const fs::path& traces, std::int64_t kept) {
  std::error_code ignored;
  for (const auto& [step, path] : traces_in(traces)) {
    if (step != kept) fs::remove(path, ignored);
  }
}

FirstTensor find_first(const Runner& runner, const Entry& reference, const Entry& subject, std::int64_t steps,
                       const TraceLimits& limits) {
  const std::string step = std::to_string(steps);
  const std::vector<std::string> flags = {kTrace, step, "--stop-after", step};
  const fs::path expected = runner.run_again(reference.contestant, kPurpose, flags) / "traces",
                 actual = runner.run_again(subject.contestant, kPurpose, flags) / "traces";
  const std::optional<Divergence> first = first_divergence(expected, actual, limits);
  for (const fs::path& traces : {expected, actual}) keep_step(traces, first ? first->step : 0);
  const std::string who = subject.contestant.label();
  if (!first) {
    return {concat("No tensor of ", who, " differs by more than its limit up to step ", step,
                   ": small differences have accumulated, or the disagreement did not occur again.")};
  }
  return {concat("The first tensor of ", who, " that differs is at ", first->text(), "."), first->step,
          first->tensor, first->error, first->limit};
}

}  // namespace

FirstTensor first_divergent_tensor(const Runner& runner, const std::vector<Entry>& entries,
                                   const Check& check, const Limits& limits) {
  const Entry &subject = entries[check.subject], &reference = entries[check.reference];
  for (const Entry* entry : {&reference, &subject}) {
    if (!entry->contestant.program.flags.contains(kTrace)) {
      return {concat("The first tensor that differs is unknown: ", entry->contestant.program.path.filename(),
                     " has no ", kTrace, ".")};
    }
  }
  try {
    return find_first(runner, reference, subject, check.first->step, trace_limits(check, limits));
  } catch (const std::exception& error) {
    return {concat("The first tensor of ", subject.contestant.label(),
                   " that differs is unknown: ", error.what())};
  }
}

}  // namespace stagegpt::compare
