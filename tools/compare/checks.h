// Checks whether contestants agree: losses and gradient norms of all steps within limits, or bit for bit if
// the same bits are guaranteed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/compare/contestant.h"
#include "tools/compare/step_timeline.h"
#include "tools/compare/trial.h"

namespace stagegpt::compare {

// A profile of a few steps, in a run of its own.
struct Recording {
  std::string profile;    // the file's path inside the report's directory
  StepTimeline timeline;  // without ranks if there is none
  std::string failure;    // why there is none; empty if there is one
};

// A contestant and its results.
struct Entry {
  Contestant contestant;
  std::vector<std::string> command;  // words of the command of its first trial
  std::string machine;               // the program's description of its machine
  std::vector<Trial> trials;
  std::string failure;  // why a trial failed; empty if none has
  std::optional<Recording> recording = {};

  bool failed() const { return !failure.empty(); }
};

// The first difference of two contestants that exceeds its limit.
struct Disagreement {
  std::int64_t step = 0;  // from 1 on
  std::string quantity;   // "loss", "gradient norm", "final weights" or "number of steps"
  double expected = 0, actual = 0;
  double error = 0, limit = 0;  // relative; limit 0: the same bits are expected
  std::size_t trial = 0;        // of the subject
};

// The comparison of a contestant with another one, or of its own trials.
struct Check {
  enum class Kind {
    tolerance,  // with the reference
    bits,       // bit for bit, with a reproducible run at another stage or number of ranks
    repeats     // bit for bit, its own trials
  };
  Kind kind = Kind::tolerance;
  std::size_t subject = 0, reference = 0;  // indices of entries
  std::int64_t steps = 0;
  // Largest relative differences over all steps and trials, and their steps.
  double loss_error = 0, norm_error = 0;
  std::int64_t loss_step = 0, norm_step = 0;
  std::optional<Disagreement> first;

  bool passed() const { return !first; }
};
const char* name_of(Check::Kind kind);

// |actual - expected| / |expected|. 0 for the same bits, even if NaN; infinite if only one of them is finite.
double relative_difference(double expected, double actual);

// Compares all entries that have trials: each one with the first entry of the same batch size, within the
// limits, and its trials with each other, bit for bit. Reproducible entries of one build on the same kind of
// hardware are compared bit for bit; only the first one of each kind is compared with the reference.
std::vector<Check> check_agreement(const std::vector<Entry>& entries, const Limits& limits);

}  // namespace stagegpt::compare
