#include "common/logging/tensor_names.h"

#include <algorithm>

namespace stagegpt {
namespace {

// "h.3.mlp.c_fc" for "h.3.mlp.c_fc.weight".
std::string layer_of(const std::string& parameter) { return parameter.substr(0, parameter.rfind('.')); }

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

}  // namespace stagegpt
