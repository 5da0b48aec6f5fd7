#include "common/measure/step_times.h"

#include <algorithm>
#include <cmath>

namespace stagegpt {
namespace {

constexpr double kMilliseconds = 1e3;

}  // namespace

void Samples::add(double ms) { sorted_.insert(std::ranges::upper_bound(sorted_, ms), ms); }

double Samples::quantile(double q) const {
  const double position = q * static_cast<double>(sorted_.size() - 1);
  const auto below = static_cast<std::size_t>(position);
  const std::size_t above = std::min(below + 1, sorted_.size() - 1);
  return std::lerp(sorted_[below], sorted_[above], position - static_cast<double>(below));
}

void PhaseTimes::add(const PhaseSeconds& step) {
  data_.add(kMilliseconds * step.data);
  forward_.add(kMilliseconds * step.forward);
  backward_.add(kMilliseconds * step.backward);
  communication_.add(kMilliseconds * step.communication);
  optimizer_.add(kMilliseconds * step.optimizer);
}

PhaseSeconds PhaseTimes::median() const {
  return {.data = data_.median() / kMilliseconds,
          .forward = forward_.median() / kMilliseconds,
          .backward = backward_.median() / kMilliseconds,
          .communication = communication_.median() / kMilliseconds,
          .optimizer = optimizer_.median() / kMilliseconds};
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
