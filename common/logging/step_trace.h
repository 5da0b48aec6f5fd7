// Writes the tensors of one training step to a file, for comparison with another run: see
// tools/compare/divergence.h. Layout: docs/file_formats.md.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/heartbeat.h"
#include "common/checkpoint/parameter_values.h"
#include "common/model/parameters.h"

namespace stagegpt {

// Readable names: "the weight h.3.mlp.c_fc.weight", "the output of h.3.mlp.c_fc (linear)", "the output of
// attention, after h.3.attn.c_attn".
std::string weight_name(const Parameter& parameter);
std::string gradient_name(const Parameter& parameter);

// Names of the outputs of a forward pass.
class OutputNames {
 public:
  // The table is borrowed.
  explicit OutputNames(const ParameterTable& table) : table_(table) {}

  // The names of the outputs of an op. Must be called for all ops in the order in which they run.
  std::vector<std::string> of(std::string_view op, std::span<const Var> inputs, std::size_t outputs);

 private:
  const ParameterTable& table_;
  std::string last_layer_ = "nothing";
};

// The output of an op of a forward pass, in host memory.
struct TracedOutput {
  std::string name;
  std::vector<std::int64_t> shape;  // (B,T,…), without padding
  std::vector<float> values;
};

// What a step has computed.
struct StepTrace {
  std::vector<TracedOutput> outputs;   // in the order in which they were computed
  double loss = 0;                     // of the whole step
  ParameterValues gradients, weights;  // of the parameters of a table
};

// The file is on the disk when the call returns; an existing file is replaced. Throws std::runtime_error that
// names the file.
void write_trace(
    const std::filesystem::path& path, const ParameterTable& table, const StepTrace& trace,
    const Heartbeat& beat = [] {});

// The file name of the trace of a step. Steps count from 1.
std::string trace_name(std::int64_t step);
// All traces in a directory, by step; none if the directory does not exist.
std::map<std::int64_t, std::filesystem::path> traces_in(const std::filesystem::path& directory);
// Removes the traces of steps after `step`. A run that resumes from `step` will write them again.
void remove_traces_behind(const std::filesystem::path& directory, std::int64_t step);

}  // namespace stagegpt
