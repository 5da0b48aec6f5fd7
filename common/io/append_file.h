// A file that grows while a long job goes on, whatever becomes of the disk meanwhile.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "common/io/file.h"

namespace stagegpt {

class AppendFile {
 public:
  // Opens a file to write behind what it holds, or creates it. Throws std::runtime_error that names it.
  explicit AppendFile(const std::filesystem::path& path);

  // Writes bytes behind those before them. False where that cannot be done now, on a full disk for one: what
  // is left, which may begin inside these bytes, is written with the next. errno says why.
  bool add(std::string_view bytes);
  // Returns when all bytes are on the disk; throws std::runtime_error when they cannot be written.
  void sync();

 private:
  std::filesystem::path path_;
  FileDescriptor file_;
  std::string unwritten_;
};

}  // namespace stagegpt
