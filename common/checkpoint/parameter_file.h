// Parameters as tensors of a safetensors file, under Hugging Face's names and in its order of elements: the
// weights of a block's four projections are (in,out) there, (out,in) in the table.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/checkpoint/parameter_values.h"
#include "common/checkpoint/safetensors.h"

namespace stagegpt {

// Values of every parameter of a table, named prefix + the parameter's name in files.
struct ParameterGroup {
  std::string prefix;
  ParameterValues values;
};

// Writes all groups. Failures throw as OutputFile's do.
FileEntry write_parameters(const std::filesystem::path& path, const ParameterTable& table,
                           const std::vector<ParameterGroup>& groups);

using SafetensorsViews = std::map<std::string, SafetensorsView>;

// The values of one group; weights that lie transposed are given whole only. Throws UserError where a tensor
// is missing, has another shape, or holds no floats. Both are borrowed.
ParameterValues safetensors_values(const ParameterTable& table, const SafetensorsViews& tensors,
                                   const std::string& prefix);

}  // namespace stagegpt
