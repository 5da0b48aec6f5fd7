// Where a comparison goes: DIR/index.html, results.json, results.csv, runs/.
#pragma once

#include <filesystem>

#include "tools/compare/comparison.h"

namespace stagegpt::compare {

class ReportDirectory {
 public:
  // Throws UserError, naming --output, unless it is new or empty; with `overwrite` it may hold an earlier
  // comparison, and nothing else.
  ReportDirectory(std::filesystem::path path, bool overwrite);

  // Makes it, and removes what an earlier comparison has left.
  void begin() const;
  // Writes the three reports, in place of those that are there.
  void write(const Comparison& comparison) const;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace stagegpt::compare
