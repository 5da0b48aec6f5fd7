// Whether contestants have computed the same: losses and gradient norms of every step within a limit, or to
// the bit where that is promised.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/compare/contestant.h"
#include "tools/compare/trial.h"

namespace stagegpt::compare {

// A contestant and what has become of it.
struct Entry {
  Contestant contestant;
  std::vector<std::string> command;  // of its first trial, as a shell takes it
  std::string machine;               // what the program says it runs on
  std::vector<Trial> trials;
  std::string failure;  // why there are no more; empty where none has failed

  bool failed() const { return !failure.empty(); }
};

// Where two first differ by more than they may.
struct Disagreement {
  std::int64_t step = 0;  // from 1 on
  std::string quantity;   // "loss", "gradient norm", "final weights" or "number of steps"
  double expected = 0, actual = 0;
  double error = 0, limit = 0;  // relative; limit 0: the same bits
  std::size_t trial = 0;        // of the subject
};

// One contestant beside another, or beside itself.
struct Check {
  enum class Kind {
    tolerance,  // with the reference
    bits,       // with another stage or number of ranks, reproducible
    repeats     // its own trials among each other, bits too
  };
  Kind kind = Kind::tolerance;
  std::size_t subject = 0, reference = 0;  // among the entries
  std::int64_t steps = 0;
  // Largest relative differences, over all steps and trials, and where they are.
  double loss_error = 0, norm_error = 0;
  std::int64_t loss_step = 0, norm_step = 0;
  std::optional<Disagreement> first;

  bool passed() const { return !first; }
};
const char* name_of(Check::Kind kind);

// |actual - expected| / |expected|. 0 for the same bits, also of NaN; infinite where only one is finite.
double relative_difference(double expected, double actual);

// Compares all entries that have trials: each with the first of the same batch size, within the limits, and
// its trials among each other, to the bit. Reproducible ones on the same kind of hardware are compared to the
// bit, and the first of each kind with that reference.
std::vector<Check> check_agreement(const std::vector<Entry>& entries, const Limits& limits);

}  // namespace stagegpt::compare
