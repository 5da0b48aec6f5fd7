// Readable names for the tensors of a training step: "the weight h.3.mlp.c_fc.weight", "the output of
// h.3.mlp.c_fc (linear)", "the output of attention, after h.3.attn.c_attn".
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/model/parameters.h"

namespace stagegpt {

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

}  // namespace stagegpt
