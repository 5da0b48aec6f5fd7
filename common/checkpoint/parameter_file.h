// Parameters as tensors of a safetensors file, with Hugging Face's names and element order: the weights of a
// block's four projections are (in,out) in the file, (out,in) in the table.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/checkpoint/parameter_values.h"
#include "common/checkpoint/safetensors.h"

namespace stagegpt {

// The values of every parameter of a table. Their names in the file are prefix + the parameter's name.
struct ParameterGroup {
  std::string prefix;
  ParameterValues values;
};

// Writes all groups. It asks for the values of each in the order of the table, in pieces. Needs memory for a
// few of the largest pieces: a weight that is transposed is one. Errors are those of OutputFile.
FileEntry write_parameters(const std::filesystem::path& path, const ParameterTable& table,
                           const std::vector<ParameterGroup>& groups);

using SafetensorsViews = std::map<std::string, SafetensorsView>;

// The values of one group. Throws UserError if a tensor is missing, has another shape, or is not F32, F16 or
// BF16. `tensors` and `table` are borrowed.
ParameterValues safetensors_values(const ParameterTable& table, const SafetensorsViews& tensors,
                                   const std::string& prefix);

}  // namespace stagegpt
