// Regular expressions (ECMAScript), compiled once for all tests: the templates of <regex> take seconds in
// each file.
#pragma once

#include <string>
#include <vector>

namespace stagegpt::test {

// Whether the whole text matches.
bool matches(const std::string& text, const std::string& pattern);
// Whether a part of the text matches.
bool has_match(const std::string& text, const std::string& pattern);
// The groups of each match, from left to right.
std::vector<std::vector<std::string>> all_groups(const std::string& text, const std::string& pattern);
// The text with each match replaced by `by`.
std::string replace_matches(const std::string& text, const std::string& pattern, const std::string& by);

}  // namespace stagegpt::test
