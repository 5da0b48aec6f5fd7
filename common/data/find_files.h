// Files by name or pattern.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace stagegpt {

// The file of that very name, if there is one; else all that the pattern (*, ?, [...]) matches, sorted.
// Throws UserError, naming `flag`, where there are none.
std::vector<std::string> find_files(const std::string& pattern, std::string_view flag);

// The same without that error. Both throw std::runtime_error where the file system fails.
std::vector<std::string> matching_files(const std::string& pattern);

// A pattern that matches this very text.
std::string as_pattern(std::string_view text);

}  // namespace stagegpt
