// Files that come with the programs: example data, and GPT-2's vocabulary once it is downloaded.
#pragma once

#include <filesystem>

namespace stagegpt {

// The first that exists of: `path` itself, from the working directory; `path` in ../share/stagegpt of the
// program's directory, where `cmake --install` puts such files; `path` in the source tree. If there is none,
// `path`.
std::filesystem::path find_shared(const std::filesystem::path& path);

}  // namespace stagegpt
