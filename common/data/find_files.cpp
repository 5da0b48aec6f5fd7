#include "common/data/find_files.h"

#include <glob.h>

#include <cstring>
#include <filesystem>

#include "common/base/error.h"
#include "common/io/file.h"

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
  const auto require_readable = [&](int error) {
    if (error != 0 && !is_users_mistake(error))
      throw std::runtime_error(concat("cannot look for \"", pattern, "\": ", std::strerror(error)));
  };
  std::error_code error;
  if (std::filesystem::exists(pattern, error)) return {pattern};
  require_readable(error.value());
  glob_t matches{};
  std::vector<std::string> files;
  static thread_local int glob_error;
  glob_error = 0;
  const auto note = [](const char*, int why) {
    if (!is_users_mistake(why)) glob_error = why;
    return glob_error;
  };
  if (glob(pattern.c_str(), 0, note, &matches) == 0) {
    files.assign(matches.gl_pathv, matches.gl_pathv + matches.gl_pathc);
  }
  globfree(&matches);
  require_readable(glob_error);
  return files;
}

std::string escape_pattern(std::string_view text) {
  std::string pattern;
  for (const char c : text) {
    if (c == '\\' || kSpecial.find(c) != std::string_view::npos) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

}  // namespace stagegpt
