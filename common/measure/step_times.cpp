#include "common/measure/step_times.h"

#include <algorithm>
#include <cmath>

#include "common/base/error.h"

namespace stagegpt {
namespace {

constexpr double kMilliseconds = 1e3;

// The order of samples: NaN is last.
bool is_less(double a, double b) { return a < b || (std::isnan(b) && !std::isnan(a)); }

}  // namespace

void Samples::add(double value) { sorted_.insert(std::ranges::upper_bound(sorted_, value, is_less), value); }

double Samples::quantile(double q) const {
  check(!sorted_.empty(), "a quantile of no samples");
  const double position = q * static_cast<double>(sorted_.size() - 1);
  const auto below = static_cast<std::size_t>(position);
  const auto above = static_cast<std::size_t>(std::ceil(position));
  return std::lerp(sorted_[below], sorted_[above], position - static_cast<double>(below));
}

void PhaseTimes::add(const PhaseSeconds& step) {
  for (std::size_t i = 0; i < ms_.size(); ++i) ms_[i].add(kMilliseconds * step.*kStepPhases[i].seconds);
}

PhaseSeconds PhaseTimes::median() const {
  PhaseSeconds median;
  for (std::size_t i = 0; i < ms_.size(); ++i)
    median.*kStepPhases[i].seconds = ms_[i].median() / kMilliseconds;
  return median;
}

void OpTimes::add(const std::vector<Profiler::Entry>& step) {
  for (const Profiler::Entry& entry : step) {
    Op& op = ops_.try_emplace(entry.name, Op{entry, {}}).first->second;
    op.ms.add(kMilliseconds * entry.seconds);
  }
}

std::vector<Profiler::Entry> OpTimes::medians() const {
  std::vector<Profiler::Entry> medians;
  for (const auto& [name, op] : ops_) {
    medians.push_back(op.step);
    medians.back().seconds = op.ms.median() / kMilliseconds;
  }
  std::ranges::stable_sort(medians, std::ranges::greater{}, &Profiler::Entry::seconds);
  return medians;
}

}  // namespace stagegpt
