// The tensors of one training step in a file, to be compared with those of another run: see
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

// Outputs are held in host memory until they are written.
class StepTrace {
 public:
  // Both are borrowed.
  StepTrace(Backend& backend, const Parameters& parameters);

  // Takes what the ops of a forward pass compute, for Trainer::step(); it must not outlive the trace.
  Tape::OpWatch watch();
  // Writes that, the loss of the whole step, the gradients and the weights as they are now. The
  // file is on the disk when it returns; one that was there is replaced. Throws std::runtime_error that names
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

// What the trace of a step is called, counted from 1.
std::string trace_name(std::int64_t step);
// All traces in a directory, by step; none where there is no directory.
std::map<std::int64_t, std::filesystem::path> traces_in(const std::filesystem::path& directory);
// Removes those of later steps: a run that was stopped has left them, and comes there again.
void remove_traces_behind(const std::filesystem::path& directory, std::int64_t step);

}  // namespace stagegpt
