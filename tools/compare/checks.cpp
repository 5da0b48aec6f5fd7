#include "tools/compare/checks.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace stagegpt::compare {
namespace {

struct Quantity {
  const char* name;
  double StepRecord::*value;
  double Limits::*limit;
  double Check::*error;
  std::int64_t Check::*at;
};

constexpr Quantity kQuantities[] = {
    {"loss", &StepRecord::loss, &Limits::loss, &Check::loss_error, &Check::loss_step},
    {"gradient norm", &StepRecord::grad_norm, &Limits::grad_norm, &Check::norm_error, &Check::norm_step}};

bool same_bits(double a, double b) {
  return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}

// Adds comparisons of trials to a Check, which keeps the first disagreement.
class TrialComparison {
 public:
  TrialComparison(Check& check, const Limits& limits) : check_(check), limits_(limits) {}

  void add(const Trial& expected, const Trial& actual, std::size_t trial) {
    const std::size_t steps = std::min(expected.steps.size(), actual.steps.size());
    check_.steps = std::max(check_.steps, static_cast<std::int64_t>(steps));
    for (std::size_t step = 0; step < steps; ++step) {
      for (const Quantity& quantity : kQuantities) {
        add_value(quantity, step, expected.steps[step].*quantity.value, actual.steps[step].*quantity.value,
                  trial);
      }
    }
    const auto last = static_cast<std::int64_t>(steps);
    if (expected.steps.size() != actual.steps.size()) {
      disagree({last, "number of steps", static_cast<double>(expected.steps.size()),
                static_cast<double>(actual.steps.size()), std::numeric_limits<double>::infinity(), 0, trial});
    } else if (to_the_bit() && expected.weights_xxh3_128 != actual.weights_xxh3_128) {
      disagree({last, "final weights", 0, 0, std::numeric_limits<double>::infinity(), 0, trial});
    }
  }

 private:
  bool to_the_bit() const { return check_.kind != Check::Kind::tolerance; }

  void add_value(const Quantity& quantity, std::size_t index, double expected, double actual,
                 std::size_t trial) {
    const double error = relative_difference(expected, actual);
    const auto step = static_cast<std::int64_t>(index) + 1;
    if (error > check_.*quantity.error) {
      check_.*quantity.error = error;
      check_.*quantity.at = step;
    }
    const double limit = to_the_bit() ? 0 : limits_.*quantity.limit;
    const bool agrees = to_the_bit() ? same_bits(expected, actual) : std::isfinite(actual) && error <= limit;
    if (!agrees) disagree({step, quantity.name, expected, actual, error, limit, trial});
  }

  void disagree(Disagreement found) {
    if (!check_.first || found.step < check_.first->step) check_.first = std::move(found);
  }

  Check& check_;
  const Limits& limits_;
};

class Checker {
 public:
  Checker(const std::vector<Entry>& entries, const Limits& limits) : entries_(entries), limits_(limits) {}

  std::vector<Check> run() {
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      if (entries_[i].trials.empty()) continue;
      const std::optional<std::size_t> reference = reference_of(i), twin = twin_of(i);
      if (twin) {
        compare(Check::Kind::bits, i, *twin);
      } else if (reference) {
        compare(Check::Kind::tolerance, i, *reference);
      }
      if (entries_[i].trials.size() > 1) compare(Check::Kind::repeats, i, i);
    }
    return std::move(checks_);
  }

 private:
  template <class Matches>
  std::optional<std::size_t> first_before(std::size_t subject, const Matches& matches) const {
    for (std::size_t i = 0; i < subject; ++i) {
      if (!entries_[i].trials.empty() && matches(entries_[i].contestant)) return i;
    }
    return std::nullopt;
  }

  std::optional<std::size_t> reference_of(std::size_t subject) const {
    const Contestant& own = entries_[subject].contestant;
    return first_before(subject, [&](const Contestant& other) { return other.batch_size == own.batch_size; });
  }

  // The first entry that must have the same bits as the subject.
  std::optional<std::size_t> twin_of(std::size_t subject) const {
    const Contestant& own = entries_[subject].contestant;
    return first_before(subject, [&](const Contestant& other) {
      return own.reproducible && other.reproducible && other.batch_size == own.batch_size &&
             other.program.hardware == own.program.hardware &&
             other.program.other_build == own.program.other_build;
    });
  }

  void compare(Check::Kind kind, std::size_t subject, std::size_t reference) {
    Check check{.kind = kind, .subject = subject, .reference = reference, .first = {}};
    TrialComparison comparison(check, limits_);
    const std::vector<Trial>& trials = entries_[subject].trials;
    for (std::size_t trial = subject == reference ? 1 : 0; trial < trials.size(); ++trial) {
      comparison.add(entries_[reference].trials.front(), trials[trial], trial);
    }
    checks_.push_back(std::move(check));
  }

  const std::vector<Entry>& entries_;
  const Limits& limits_;
  std::vector<Check> checks_;
};

}  // namespace

const char* name_of(Check::Kind kind) {
  constexpr const char* kNames[] = {"within limits", "same bits", "repeats, same bits"};
  return kNames[static_cast<int>(kind)];
}

double relative_difference(double expected, double actual) {
  if (same_bits(expected, actual) || expected == actual) return 0;
  if (!std::isfinite(expected) || !std::isfinite(actual) || expected == 0) {
    return std::numeric_limits<double>::infinity();
  }
  return std::abs(actual - expected) / std::abs(expected);
}

std::vector<Check> check_agreement(const std::vector<Entry>& entries, const Limits& limits) {
  return Checker(entries, limits).run();
}

}  // namespace stagegpt::compare
