#include "common/logging/step_trace.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <string_view>

#include "common/checkpoint/run_directory.h"
#include "common/checkpoint/safetensors.h"

namespace stagegpt {
namespace {

// "h.3.mlp.c_fc" for "h.3.mlp.c_fc.weight".
std::string layer_of(const std::string& parameter) { return parameter.substr(0, parameter.rfind('.')); }

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

std::vector<Piece> weight_pieces(const ParameterTable& table) {
  constexpr std::int64_t kElements = 1 << 20;
  return table.pieces({0, table.arena_size(1)}, kElements);
}

// Backward computes the gradients in reverse order of the parameters.
std::vector<Piece> gradient_pieces(const ParameterTable& table) {
  std::vector<Piece> pieces = weight_pieces(table);
  std::ranges::stable_sort(pieces, std::greater(), &Piece::parameter);
  return pieces;
}

}  // namespace

std::string weight_name(const Parameter& parameter) { return "the weight " + parameter.name; }

std::string gradient_name(const Parameter& parameter) { return "the gradient of " + parameter.name; }

std::vector<std::string> OutputNames::of(std::string_view op, std::span<const Var> inputs,
                                         std::size_t outputs) {
  const auto parameter = std::ranges::find_if(inputs, [](const Var& input) { return input.leaf_id() >= 0; });
  if (parameter == inputs.end()) {
    return std::vector<std::string>(outputs, concat("the output of ", op, ", after ", last_layer_));
  }
  last_layer_ = layer_of(table_[static_cast<std::size_t>(parameter->leaf_id())].name);
  std::vector<std::string> names(outputs, concat("the output of ", last_layer_, " (", op, ")"));
  // The first output of a fused op is the residual stream with a branch added: the input of the layer.
  if (outputs > 1) names.front() = concat("the residual stream before ", last_layer_);
  return names;
}

void write_trace(const fs::path& path, const ParameterTable& table, const StepTrace& trace,
                 const Heartbeat& beat) {
  TensorList list;
  for (const TracedOutput& output : trace.outputs) list.add(output.name, output.shape);
  list.add("the loss", {1});
  const std::vector<Parameter>& rows = table.rows();
  for (auto row = rows.rbegin(); row != rows.rend(); ++row) list.add_parameter(gradient_name(*row), *row);
  for (const Parameter& row : rows) list.add_parameter(weight_name(row), row);

  const auto values_of = [&](const Piece& piece, const ParameterValues& values) {
    beat();
    std::vector<float> elements(static_cast<std::size_t>(piece.size()));
    values(piece.parameter, piece.begin, elements);
    return elements;
  };
  replace_file(path, [&](const fs::path& temporary) {
    SafetensorsWriter file(temporary, list.tensors());
    for (const TracedOutput& output : trace.outputs) file.append(output.values);
    const auto loss = static_cast<float>(trace.loss);
    file.append({&loss, 1});
    for (const Piece& piece : gradient_pieces(table)) file.append(values_of(piece, trace.gradients));
    for (const Piece& piece : weight_pieces(table)) file.append(values_of(piece, trace.weights));
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
