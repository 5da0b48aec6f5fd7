// The tables of a comparison's report.
#pragma once

#include <string>

#include "tools/compare/comparison.h"
#include "tools/compare/table.h"

namespace stagegpt::compare {

Table agreement_table(const Comparison& comparison);
Table speed_table(const Comparison& comparison);
Table left_out_table(const Comparison& comparison);

// What the numbers of the tables mean in this comparison.
std::string agreement_note(const Comparison& comparison);
std::string speed_note(const Comparison& comparison);
// That the machine was too busy for the speeds to mean much; empty where it was not, or where it is not
// known.
std::string busy_note(const Comparison& comparison);

// What is printed: verdict and tables.
std::string terminal_report(const Comparison& comparison);

}  // namespace stagegpt::compare
