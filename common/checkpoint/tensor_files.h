// Tensors in one file, NAME.safetensors, or divided among several under Hugging Face's names:
// NAME-00001-of-00004.safetensors, …, and NAME.safetensors.index.json, which names the file of each tensor.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/checkpoint/parameter_values.h"
#include "common/checkpoint/safetensors.h"
#include "common/io/file.h"

namespace stagegpt {

// The values of every parameter of a table. Their names in the file are prefix + the parameter's name.
struct ParameterGroup {
  std::string prefix;
  ParameterValues values;
};

// Parameters have Hugging Face's names and element order: the weights of a block's four projections are
// (in,out) in the file, (out,in) in the table.
// Writes all groups. It asks for the values of each in the order of the table, in pieces. Needs memory for a
// few of the largest pieces: a weight that is transposed is one. Errors are those of OutputFile.
FileEntry write_parameters(const std::filesystem::path& path, const ParameterTable& table,
                           const std::vector<ParameterGroup>& groups);

using SafetensorsViews = std::map<std::string, SafetensorsView>;

// The values of one group. Throws UserError if a tensor is missing, has another shape, or is not F32, F16 or
// BF16. The bytes of the tensors are borrowed.
ParameterValues safetensors_values(const ParameterTable& table, const SafetensorsViews& tensors,
                                   const std::string& prefix);

// NAME.safetensors, and the name of an index.
std::string tensor_file_name(std::string_view name);
std::string tensor_index_name(std::string_view name);

// The files that an index names. Throws UserError that names it.
std::set<std::string> files_of_index(const std::filesystem::path& index);

// The tensors under NAME in a directory. The files are memory-mapped while the object lives.
class TensorFiles {
 public:
  // The name of a tensor in tensors(), or nothing if it is ignored.
  using Rename = std::function<std::optional<std::string>(const std::string&)>;

  // Reads only the headers. Throws UserError that names the file if one is missing or invalid, or if a tensor
  // occurs twice.
  TensorFiles(
      const std::filesystem::path& directory, std::string_view name,
      const Rename& rename = [](const std::string& tensor) { return tensor; });
  TensorFiles(const TensorFiles&) = delete;
  TensorFiles& operator=(const TensorFiles&) = delete;

  SafetensorsViews& tensors() { return tensors_; }
  // The single file, or the index.
  const std::filesystem::path& path() const { return path_; }

 private:
  void map(const std::filesystem::path& path, const Rename& rename);

  std::filesystem::path path_;
  std::vector<std::unique_ptr<MappedFile>> files_;
  SafetensorsViews tensors_;
};

// As safetensors_values(). The files stay mapped as long as a copy of the result lives.
ParameterValues file_values(const std::shared_ptr<TensorFiles>& files, const ParameterTable& table,
                            const std::string& prefix);

}  // namespace stagegpt
