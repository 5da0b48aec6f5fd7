// A file that a flag names, for a result that takes long to compute: a mistake is refused at the start.
#pragma once

#include <filesystem>
#include <functional>

namespace stagegpt {

// Throws UserError, naming the flag, if the file cannot be written by replace_file(), or if a file of this
// name exists for which is_own() is false; `kind` says what a file of ours is: "a profile".
void require_result_file(const std::filesystem::path& file, const char* flag, const char* kind,
                         const std::function<bool(const std::filesystem::path&)>& is_own);

}  // namespace stagegpt
