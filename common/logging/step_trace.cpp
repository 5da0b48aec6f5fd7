#include "common/logging/step_trace.h"

#include <cstdio>
#include <string_view>

#include "common/checkpoint/run_directory.h"
#include "common/checkpoint/safetensors.h"
#include "common/logging/tensor_names.h"

namespace stagegpt {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSuffix = ".safetensors";

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

// Backward computes the gradients in reverse order of the parameters.
std::vector<std::size_t> order_of_gradients(const ParameterTable& table) {
  std::vector<std::size_t> order;
  for (std::size_t i = table.size(); i-- > 0;) order.push_back(i);
  return order;
}

void write_trace(const fs::path& path, const ParameterTable& table, const StepTrace& trace,
                 const Heartbeat& beat) {
  TensorList list;
  for (const TracedOutput& output : trace.outputs) list.add(output.name, output.shape);
  list.add("the loss", {1});
  for (const std::size_t i : order_of_gradients(table)) list.add_parameter(gradient_name(table[i]), table[i]);
  for (const Parameter& row : table.rows()) list.add_parameter(weight_name(row), row);

  const auto values_of = [&](std::size_t i, const ParameterValues& values) {
    beat();
    std::vector<float> elements(static_cast<std::size_t>(table[i].shape.numel()));
    values(i, 0, elements);
    return elements;
  };
  replace_file(path, [&](const fs::path& temporary) {
    SafetensorsWriter file(temporary, list.tensors());
    for (const TracedOutput& output : trace.outputs) file.append(output.values);
    const auto loss = static_cast<float>(trace.loss);
    file.append({&loss, 1});
    for (const std::size_t i : order_of_gradients(table)) file.append(values_of(i, trace.gradients));
    for (std::size_t i = 0; i < table.size(); ++i) file.append(values_of(i, trace.weights));
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
