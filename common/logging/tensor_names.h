// What the tensors of a training step are called, for a reader: "the weight h.3.mlp.c_fc.weight", "the output
// of h.3.mlp.c_fc (linear)", "the output of attention, after h.3.attn.c_attn".
#pragma once

#include <span>
#include <string>
#include <vector>

#include "common/model/parameters.h"

namespace stagegpt {

std::string weight_name(const Parameter& parameter);
std::string gradient_name(const Parameter& parameter);

// Names of what a forward pass computes.
class OutputNames {
 public:
  // The table is borrowed.
  explicit OutputNames(const ParameterTable& table) : table_(table) {}

  // Those of an op's outputs. Ops are told in the order in which they run.
  std::vector<std::string> of(const std::string& op, std::span<const Var> inputs, std::size_t outputs);

 private:
  const ParameterTable& table_;
  std::string last_layer_ = "nothing";
};

}  // namespace stagegpt
