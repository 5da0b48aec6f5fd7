// Finds files by name or glob pattern.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace stagegpt {

// The file with exactly this name, if it exists; otherwise all files that match the pattern (*, ?, [...]),
// sorted. Throws UserError, which names `flag`, if there are none.
std::vector<std::string> find_files(const std::string& pattern, std::string_view flag);

// As find_files(), but returns an empty list if there are none. Both throw std::runtime_error on an error of
// the file system.
std::vector<std::string> matching_files(const std::string& pattern);

// A pattern that matches exactly this text: escapes special characters.
std::string escape_pattern(std::string_view text);

}  // namespace stagegpt
