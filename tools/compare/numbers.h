// Formats numbers for tables.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/grouped.h"

namespace stagegpt::compare {

// Three significant digits: "0.123", "4.56", "78.9", "12,345".
std::string three_digits(double value);
// "1.2e-7", "1e-5"; "0" and "infinite".
std::string scientific(double value);
// The shortest text that gives the same number when it is parsed.
std::string exactly(double value);
// "1 core", "2 cores".
std::string counted(std::int64_t count, const char* thing);
// "12.3 %".
std::string percent(double share);
// "12.3 MiB".
std::string mebibytes(std::int64_t bytes);

}  // namespace stagegpt::compare
