// Reads the trace of one training step, as write_trace() writes it (step_trace.h).
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "common/checkpoint/safetensors.h"
#include "common/io/file.h"

namespace stagegpt {

class TraceFile {
 public:
  // Throws UserError, which names the file, if it is not a trace.
  explicit TraceFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  // Names of the tensors, without their numbers, in order of computation.
  const std::vector<std::string>& names() const { return names_; }
  bool has(const std::string& name) const { return tensors_.contains(name); }
  const std::vector<std::int64_t>& shape(const std::string& name) const { return tensors_.at(name).shape; }
  // The first `rows` rows; -1: all of them.
  std::vector<float> values(const std::string& name, std::int64_t rows = -1) const;

 private:
  void add(const std::string& numbered, const SafetensorsView& tensor);

  std::filesystem::path path_;
  MappedFile file_;
  std::vector<std::string> names_;
  std::map<std::string, SafetensorsView> tensors_;
};

}  // namespace stagegpt
