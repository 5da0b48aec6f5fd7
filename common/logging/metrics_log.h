// metrics.jsonl: the measurements of a run. One JSON object per line, one line per step. Fields:
// docs/file_formats.md.
#pragma once

#include <cstdint>
#include <filesystem>

#include "common/base/json_fwd.h"
#include "common/io/output_file.h"

namespace stagegpt {

class MetricsLog {
 public:
  // Opens the file. Of an existing file it keeps the lines of steps 1 to `steps_done` and drops the rest:
  // steps that will be repeated, and an incomplete line of a killed process. Errors are those of OutputFile.
  MetricsLog(const std::filesystem::path& path, std::int64_t steps_done);

  // Adds a line, which begins with the version of the schema. If it cannot be written now, for example on a
  // full disk, it is written with the next line.
  void add(const Json& fields);
  // Returns when all lines are on the disk. Throws std::runtime_error if they cannot be written.
  void sync() { file_.sync(); }
  // Of the steps that were kept: what their lines say.
  struct Seconds {
    double training = 0, validation = 0;
  };
  const Seconds& seconds_before() const { return seconds_before_; }

 private:
  Seconds seconds_before_;  // initialised first: that drops lines
  AppendFile file_;
};

}  // namespace stagegpt
