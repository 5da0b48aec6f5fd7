// A log file that a long job appends to. Write errors, such as a full disk, do not end the job.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "common/io/file.h"

namespace stagegpt {

class AppendFile {
 public:
  // Opens a file for appending, or creates it. Throws std::runtime_error that names it.
  explicit AppendFile(const std::filesystem::path& path);

  // Appends bytes. Returns false if not all of them could be written now, for example on a full disk; errno
  // has the reason. The rest is kept and written by the next call.
  bool add(std::string_view bytes);
  // Returns when all bytes are on the disk. Throws std::runtime_error if they cannot be written.
  void sync();

 private:
  std::filesystem::path path_;
  FileDescriptor file_;
  std::string unwritten_;
};

}  // namespace stagegpt
