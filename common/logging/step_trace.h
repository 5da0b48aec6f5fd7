// Writes the tensors of one training step to a file, for comparison with another run: see
// tools/compare/divergence.h. Layout: docs/file_formats.md.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "common/base/heartbeat.h"
#include "common/checkpoint/parameter_values.h"
#include "common/model/parameters.h"

namespace stagegpt {

// Outputs are kept in host memory until they are written.
class StepTrace {
 public:
  // Both are borrowed.
  StepTrace(Backend& backend, const Parameters& parameters);

  // A callback for Trainer::step() that records the outputs of all ops of the forward pass. It must not
  // outlive the trace.
  Tape::OpWatch watch();
  // Writes the recorded outputs, the loss of the whole step, the gradients and the current weights. The file
  // is on the disk when the call returns; an existing file is replaced. Throws std::runtime_error that names
  // the file.
  void write(
      const std::filesystem::path& path, double loss, const ParameterValues& gradients,
      const Heartbeat& beat = [] {}) const;

 private:
  struct Output {
    std::string name;
    std::vector<std::int64_t> shape;
    std::vector<float> values;
  };

  void take(std::string name, const Tensor& output, std::int64_t columns);

  Backend& backend_;
  const Parameters& parameters_;
  std::vector<Output> outputs_;
};

// The file name of the trace of a step. Steps count from 1.
std::string trace_name(std::int64_t step);
// All traces in a directory, by step; none if the directory does not exist.
std::map<std::int64_t, std::filesystem::path> traces_in(const std::filesystem::path& directory);
// Removes the traces of steps after `step`. A run that resumes from `step` will write them again.
void remove_traces_behind(const std::filesystem::path& directory, std::int64_t step);

}  // namespace stagegpt
