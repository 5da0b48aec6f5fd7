// metrics.jsonl: what a run measured, one JSON object a line, one line a step. Fields: docs/file_formats.md.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>

#include "common/base/json.h"
#include "common/io/append_file.h"

namespace stagegpt {

class MetricsLog {
 public:
  // Keeps the lines of steps 1 to `steps_done` of a file that is there, and drops the rest: steps that will
  // be done again, and half a line that a killed process left. Failures throw as OutputFile's do.
  MetricsLog(const std::filesystem::path& path, std::int64_t steps_done);

  // Adds a line, which begins with the schema's version. What cannot be written now, on a full disk for one,
  // is written with the next.
  void add(const Json& fields);
  // Adds fields to the last line. Throws std::runtime_error when the file cannot be written; what it was
  // stays.
  void add_to_last(const Json& fields);
  // Returns when all lines are on the disk; throws std::runtime_error when they cannot be written.
  void sync() { file_.sync(); }

 private:
  std::filesystem::path path_;
  AppendFile file_;
};

// Whether the last line of a file is that of step `step`, in the newest version of the schema, and has no
// field of this name. False where there is no such file.
bool last_line_lacks(const std::filesystem::path& path, std::int64_t step, const char* field);

}  // namespace stagegpt
