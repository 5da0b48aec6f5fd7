#include "common/logging/step_trace.h"

#include <cstdio>
#include <string_view>

#include "common/checkpoint/run_directory.h"
#include "common/checkpoint/safetensors.h"
#include "common/logging/tensor_names.h"
#include "common/model/vocabulary_padding.h"

namespace stagegpt {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSuffix = ".safetensors";

// The number of columns of an op's output without padding. The output of a linear op has a column for each
// row of its weight matrix.
std::int64_t real_columns(std::string_view op, std::span<const Var> inputs, const Tensor& output,
                          const ParameterTable& table) {
  if (!op.starts_with("linear")) return output.shape()[-1];
  const Var& matrix = inputs[1];
  return table[static_cast<std::size_t>(matrix.leaf_id())].shape[0];
}

// The list of tensors in the order in which they are computed. The number at the beginning of a name keeps
// this order when names are sorted.
class TensorList {
 public:
  void add(const std::string& name, std::vector<std::int64_t> shape) {
    char number[16];
    std::snprintf(number, sizeof number, "%05d ", static_cast<int>(tensors_.size()));
    tensors_.push_back({number + name, std::move(shape)});
  }
  void add_parameter(const std::string& name, const Parameter& parameter) {
    const auto dims = parameter.shape.dims();
    add(name, {dims.begin(), dims.end()});
  }
  const std::vector<SafetensorsWriter::TensorInfo>& tensors() const { return tensors_; }

 private:
  std::vector<SafetensorsWriter::TensorInfo> tensors_;
};

}  // namespace

StepTrace::StepTrace(Backend& backend, const Parameters& parameters)
    : backend_(backend), parameters_(parameters) {}

Tape::OpWatch StepTrace::watch() {
  return [this, names = OutputNames(parameters_.table())](const char* op, std::span<const Var> inputs,
                                                          std::span<const Var> outputs) mutable {
    const std::vector<std::string> output_names = names.of(op, inputs, outputs.size());
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const Tensor& output = outputs[i].value();
      if (output.shape().rank() == 1) continue;  // the loss of one forward pass
      take(output_names[i], output, real_columns(op, inputs, output, parameters_.table()));
    }
  };
}

void StepTrace::take(std::string name, const Tensor& output, std::int64_t columns) {
  const Shape& shape = output.shape();  // (B,T,…)
  outputs_.push_back({std::move(name),
                      {shape[0], shape[1], columns},
                      without_padding(floats_to_host(backend_, output), shape[-1], columns)});
}

void StepTrace::write(const fs::path& path, double loss, const ParameterValues& gradients,
                      const Heartbeat& beat) const {
  const std::vector<Parameter>& table = parameters_.table().rows();
  TensorList list;
  for (const Output& output : outputs_) list.add(output.name, output.shape);
  list.add("the loss", {1});
  // Backward computes the gradients in reverse order of the parameters.
  for (auto row = table.rbegin(); row != table.rend(); ++row) {
    list.add_parameter(gradient_name(*row), *row);
  }
  for (const Parameter& row : table) list.add_parameter(weight_name(row), row);

  const ParameterValues weights = arena_values(backend_, parameters_.table(), parameters_.weights());
  const auto values_of = [&](std::size_t i, const ParameterValues& values) {
    beat();
    std::vector<float> elements(static_cast<std::size_t>(table[i].shape.numel()));
    values(i, 0, elements);
    return elements;
  };
  replace_file(path, [&](const fs::path& temporary) {
    SafetensorsWriter file(temporary, list.tensors());
    for (const Output& output : outputs_) file.append(output.values);
    const auto step_loss = static_cast<float>(loss);
    file.append({&step_loss, 1});
    for (std::size_t i = table.size(); i-- > 0;) file.append(values_of(i, gradients));
    for (std::size_t i = 0; i < table.size(); ++i) file.append(values_of(i, weights));
    file.finish();
  });
}

std::string trace_name(std::int64_t step) { return concat(checkpoint_name(step), kSuffix); }

std::map<std::int64_t, fs::path> traces_in(const fs::path& directory) {
  std::map<std::int64_t, fs::path> traces;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, error)) {
    const auto step = step_in_name(entry.path().stem().string());
    if (step && entry.path().extension() == kSuffix) traces.emplace(*step, entry.path());
  }
  return traces;
}

void remove_traces_behind(const fs::path& directory, std::int64_t step) {
  for (const auto& [traced, path] : traces_in(directory)) {
    if (traced > step) fs::remove(path);
  }
}

}  // namespace stagegpt
