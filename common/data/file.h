// A file in memory.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

namespace stagegpt {

// Mapped read-only. The views end with the object.
class MappedFile {
 public:
  // Throws UserError, naming `flag` and the file, when it is missing, not a regular file or unreadable.
  MappedFile(const std::filesystem::path& path, std::string_view flag);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }
  std::string_view text() const { return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()}; }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace stagegpt
