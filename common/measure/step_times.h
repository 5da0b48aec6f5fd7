// Times over many steps. A typical step is described by medians, because on a busy machine a few steps can
// take many times as long as the others.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/backend/profiler.h"
#include "common/train/trainer.h"

namespace stagegpt {

// Times of one operation, or other numbers of which the median is typical.
class Samples {
 public:
  void add(double value);
  std::int64_t size() const { return static_cast<std::int64_t>(sorted_.size()); }
  // q = 0 gives the minimum, 0.5 the median, 1 the maximum; interpolates linearly between samples.
  double quantile(double q) const;
  double median() const { return quantile(0.5); }

 private:
  std::vector<double> sorted_;
};

class PhaseTimes {
 public:
  void add(const PhaseSeconds& step);
  // The median of each phase. Their sum can differ from the median time of a step.
  PhaseSeconds median() const;

 private:
  std::array<Samples, kStepPhases.size()> ms_;
};

// For each op, the total time of its calls in a step.
class OpTimes {
 public:
  void add(const std::vector<Profiler::Entry>& step);
  // For each op, the median over the steps that ran it, with the calls and the work of one step. Longest
  // first.
  std::vector<Profiler::Entry> medians() const;

 private:
  struct Op {
    Profiler::Entry step;  // of the first step
    Samples ms;
  };
  std::map<std::string, Op> ops_;
};

}  // namespace stagegpt
