#include "common/io/append_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace stagegpt {

AppendFile::AppendFile(const std::filesystem::path& path)
    : path_(path), file_(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) {
  if (!file_.is_open()) fail_to_write(path_);
}

bool AppendFile::add(std::string_view bytes) {
  unwritten_ += bytes;
  while (!unwritten_.empty()) {
    const ssize_t written = write(file_.get(), unwritten_.data(), unwritten_.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    unwritten_.erase(0, static_cast<std::size_t>(written));
  }
  return true;
}

void AppendFile::sync() {
  if (!add("") || fsync(file_.get()) != 0) fail_to_write(path_);
}

}  // namespace stagegpt
