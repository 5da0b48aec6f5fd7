// The tables of a comparison's report.
#pragma once

#include <string>

#include "tools/compare/comparison.h"
#include "tools/compare/table.h"

namespace stagegpt::compare {

Table agreement_table(const Comparison& comparison);
Table speed_table(const Comparison& comparison);
Table left_out_table(const Comparison& comparison);

// Explanations of the tables' numbers in this comparison.
std::string agreement_note(const Comparison& comparison);
std::string speed_note(const Comparison& comparison);
// Why there is no speed; empty if there is one.
std::string no_speed_note(const Comparison& comparison);
// A warning that the machine was too busy for reliable speeds; empty if it was not, or if the load is
// unknown.
std::string busy_note(const Comparison& comparison);

// The report on the terminal: verdict and tables.
std::string terminal_report(const Comparison& comparison);

}  // namespace stagegpt::compare
