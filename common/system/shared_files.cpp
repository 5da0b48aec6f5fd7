#include "common/system/shared_files.h"

#include "common/system/subprocess.h"

namespace stagegpt {

namespace fs = std::filesystem;

fs::path find_shared(const fs::path& path) {
  const fs::path installed = own_directory().parent_path() / "share/stagegpt" / path;
  std::error_code ignored;
  for (const fs::path& file : {path, installed, fs::path(STAGEGPT_SOURCE_DIR) / path}) {
    if (fs::exists(file, ignored)) return file;
  }
  return path;
}

}  // namespace stagegpt
