// The text of --help, fitted to a terminal.
#pragma once

#include <cstddef>
#include <string>

namespace stagegpt {

inline constexpr std::size_t kHelpColumn = 34;  // where the descriptions of flags begin

// Breaks lines of more than `width` columns between words. The description of a flag keeps its column; where
// too few columns are left for it, it begins on the next line.
std::string fitted_help(const std::string& help, std::size_t width);

}  // namespace stagegpt
