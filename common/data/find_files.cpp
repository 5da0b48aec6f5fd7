#include "common/data/find_files.h"

#include <glob.h>

#include <filesystem>

#include "common/error.h"

namespace stagegpt {
namespace {

constexpr std::string_view kSpecial = "*?[";

}  // namespace

std::vector<std::string> find_files(const std::string& pattern, std::string_view flag) {
  std::vector<std::string> files = matching_files(pattern);
  if (!files.empty()) return files;
  if (pattern.find_first_of(kSpecial) != std::string::npos) {
    user_error(flag, ": no file matches \"", pattern, '"');
  }
  const bool known = pattern.find("tinyshakespeare") != std::string::npos ||
                     pattern.find("tinystories") != std::string::npos;
  user_error(flag, ": cannot open \"", pattern, "\": No such file or directory",
             known ? "; scripts/download_data.sh fetches it" : "");
}

std::vector<std::string> matching_files(const std::string& pattern) {
  std::error_code ignored;
  if (std::filesystem::exists(pattern, ignored)) return {pattern};
  glob_t matches{};
  std::vector<std::string> files;
  if (glob(pattern.c_str(), 0, nullptr, &matches) == 0) {
    files.assign(matches.gl_pathv, matches.gl_pathv + matches.gl_pathc);
  }
  globfree(&matches);
  return files;
}

std::string as_pattern(std::string_view text) {
  std::string pattern;
  for (const char c : text) {
    if (c == '\\' || kSpecial.find(c) != std::string_view::npos) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

}  // namespace stagegpt
