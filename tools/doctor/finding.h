// A result of doctor: what was found, and advice.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace stagegpt {

struct Finding {
  // note: something is missing or could be better. problem: something that was built does not run.
  enum class Mark : std::uint8_t { ok, note, problem };

  std::string subject;  // "driver"
  Mark mark = Mark::ok;
  std::string found;             // one line
  std::string advice = {};       // one line; empty if the mark is ok
  bool prevents_stage0 = false;  // whether stage0_train does not run with default flags
};
using Findings = std::vector<Finding>;

// The findings of probe(); if it throws, a finding with the error.
Findings examine(const std::string& subject, const std::function<Findings()>& probe);

// One line per finding, and one per advice.
std::string to_text(const Findings& findings);
// One JSON object (docs/doctor.md).
std::string to_json_text(const Findings& findings);
// Whether stage 0 can run.
bool stage0_runs(const Findings& findings);

}  // namespace stagegpt
