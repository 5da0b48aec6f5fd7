// Times of the same thing in many steps, and what one step takes: medians, since a few steps on a busy
// machine may take many times as long as the others.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/backend/profiler.h"
#include "common/train/trainer.h"

namespace stagegpt {

// Times of one thing, in ms.
class Samples {
 public:
  void add(double ms);
  std::int64_t size() const { return static_cast<std::int64_t>(sorted_.size()); }
  // 0 is the least, 0.5 the median, 1 the most; between two samples, in proportion.
  double quantile(double q) const;
  double median() const { return quantile(0.5); }

 private:
  std::vector<double> sorted_;
};

class PhaseTimes {
 public:
  void add(const PhaseSeconds& step);
  // Of each phase its median: their sum need not be the median of the steps.
  PhaseSeconds median() const;

 private:
  Samples data_, forward_, backward_, communication_, optimizer_;
};

// Of each op the time of all its calls in a step.
class OpTimes {
 public:
  void add(const std::vector<Profiler::Entry>& step);
  // Of each op the median over the steps that had it, with the calls and the work of one step. Longest first.
  std::vector<Profiler::Entry> medians() const;

 private:
  struct Op {
    Profiler::Entry step;  // the first one
    Samples ms;
  };
  std::map<std::string, Op> ops_;
};

}  // namespace stagegpt
