// Reads lines that a user types. On a terminal they can be edited, and earlier ones come back with the arrow
// keys.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace stagegpt {

class LineReader {
 public:
  // Lines are edited (by libedit) if standard input and standard error are terminals. Then lines of earlier
  // sessions are read from the user's history file.
  LineReader();
  // Writes the history file. What cannot be written is not kept; that is no error.
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  // The next line, without its end, after the prompt "> " on a terminal. Empty at the end of the input.
  std::optional<std::string> next();

 private:
  bool edits_;
  std::filesystem::path history_;
};

}  // namespace stagegpt
