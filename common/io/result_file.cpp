#include "common/io/result_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "common/base/error.h"
#include "common/io/file.h"

namespace stagegpt {

namespace fs = std::filesystem;

void require_result_file(const fs::path& file, const char* flag, const char* kind,
                         const std::function<bool(const fs::path&)>& is_own) {
  std::error_code ignored;
  const bool exists = fs::exists(file, ignored);
  if (exists && !fs::is_regular_file(file, ignored))
    user_error(flag, ": ", file, " exists and is not a regular file");
  if (exists && !is_own(file))
    user_error(flag, ": ", file, " exists and is not ", kind, "; it is not replaced");
  if (!file.has_filename()) user_error(flag, ": expected a file, not ", file);
  fs::path temporary = file;
  temporary += ".tmp";  // as replace_file() will
  const FileDescriptor created(open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!created.is_open() && errno == EEXIST) return;
  if (!created.is_open()) fail_to_open(file, flag, errno);
  unlink(temporary.c_str());
}

}  // namespace stagegpt
