#include "common/data/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "common/error.h"

namespace stagegpt {

MappedFile::MappedFile(const std::filesystem::path& path, std::string_view flag) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // does not wait for a pipe's writer
  if (fd < 0) user_error(flag, ": cannot open ", path, ": ", std::strerror(errno));
  struct stat info {};
  const bool known = fstat(fd, &info) == 0;
  const auto size = static_cast<std::size_t>(info.st_size);
  const bool mappable = known && S_ISREG(info.st_mode) && size > 0;
  void* data = mappable ? mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0) : nullptr;
  const int map_error = errno;
  close(fd);
  if (known && S_ISDIR(info.st_mode)) user_error(flag, ": ", path, " is a directory, expected a file");
  if (!known || !S_ISREG(info.st_mode)) user_error(flag, ": ", path, " is not a regular file");
  if (data == MAP_FAILED) user_error(flag, ": cannot read ", path, ": ", std::strerror(map_error));
  bytes_ = {static_cast<const std::byte*>(data), size};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace stagegpt
