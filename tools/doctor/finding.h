// What doctor has found of one thing, and what to do about it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace stagegpt {

struct Finding {
  // `note`: nothing is broken, but something is missing or could be better. `problem`: something that was
  // built does not run as it is.
  enum class Mark : std::uint8_t { ok, note, problem };

  std::string subject;  // "driver"
  Mark mark = Mark::ok;
  std::string found;             // one line
  std::string advice = {};       // one line; where the mark is not ok
  bool prevents_stage0 = false;  // not even stage0_train runs without a flag
};
using Findings = std::vector<Finding>;

// What probe() finds; where it throws, that.
Findings examine(const std::string& subject, const std::function<Findings()>& probe);

// A line for each finding, and one for each advice.
std::string to_text(const Findings& findings);
// One object: docs/doctor.md.
std::string to_json_text(const Findings& findings);
// Whether stage 0 can run.
bool stage0_runs(const Findings& findings);

}  // namespace stagegpt
