// The directory of a report: DIR/index.html, results.json, runs/, profiles/.
#pragma once

#include <filesystem>

#include "tools/compare/comparison.h"

namespace stagegpt::compare {

class ReportDirectory {
 public:
  // Throws UserError, which names --output, unless the directory is new or empty; with `overwrite` it may
  // contain an earlier comparison, and nothing else.
  ReportDirectory(std::filesystem::path path, bool overwrite);

  // Creates the directory, or removes an earlier comparison from it.
  void begin() const;
  // Writes both reports; replaces existing ones.
  void write(const Comparison& comparison) const;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace stagegpt::compare
