#include "common/train/run_log.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/base/json.h"
#include "common/data/utf8.h"
#include "common/logging/step_trace.h"

namespace stagegpt {

std::optional<SlowRanks::Slow> SlowRanks::add(std::span<const double> seconds) {
  if (seconds.size() < 2) return std::nullopt;
  sums_.resize(seconds.size());
  for (std::size_t i = 0; i < seconds.size(); ++i) sums_[i] += seconds[i];
  if (++steps_ < kSteps) return std::nullopt;
  std::vector<double> others = std::exchange(sums_, {});
  steps_ = 0;
  const auto slowest = std::ranges::max_element(others);
  const int rank = static_cast<int>(slowest - others.begin());
  const double most = *slowest;
  others.erase(slowest);
  const auto middle = others.begin() + std::ssize(others) / 2;
  std::ranges::nth_element(others, middle);
  const double factor = most / *middle;
  if (factor <= kFactor || !named_.insert(rank).second) return std::nullopt;
  return Slow{rank, factor};
}

RunLog::RunLog(RankGroup& group, const RunDirectory& directory, std::int64_t first, std::int64_t steps,
               std::int64_t tokens_per_step)
    : group_(group), directory_(directory), progress_(std::in_place, first, steps, tokens_per_step) {}

void RunLog::open_files(std::int64_t first) {
  metrics_.emplace(directory_.metrics(), first);
  remove_traces_behind(directory_.traces(), first);
  tensorboard_.emplace(directory_.path(), first, [this](const std::string& text) { note(text); });
}

void RunLog::step(const StepMetrics& metrics, double share_done) {
  metrics_->add(to_json(metrics));
  tensorboard_->add(metrics.report.step + 1, to_scalars(metrics));
  progress_->step(metrics.report, metrics.validation ? std::optional(metrics.validation->loss) : std::nullopt,
                  share_done, metrics.validation ? metrics.validation->seconds : 0);
  if (const auto slow = slow_ranks_.add(metrics.report.rank_seconds)) {
    const double tenths = std::floor(slow->factor * 10) / 10;  // not above what was measured
    note(concat("warning: rank ", slow->rank, " (", group_.host(slow->rank), ") took ", tenths,
                " times the others' median over the last ", SlowRanks::kSteps,
                " steps; all ranks wait for it"));
  }
}

void RunLog::sample(std::int64_t step, const std::string& text) {
  note(concat("sample after step ", step, ":\n", printable_text(text)));
  if (tensorboard_) tensorboard_->add_text(step, "sample", text);
}

}  // namespace stagegpt
