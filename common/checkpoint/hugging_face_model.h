// A Hugging Face GPT-2 directory: config.json, weights in safetensors (one file or several), a tokenizer.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/checkpoint/tensor_files.h"
#include "common/data/tokenizers/tokenizer.h"
#include "common/io/file.h"
#include "common/model/language_model.h"

namespace stagegpt {

// An existing model directory, written by this or another program. Its files are memory-mapped while the
// object lives.
class HuggingFaceModel {
 public:
  // Accepts tensor names with or without "transformer.". Ignores attention masks, and the output head of a
  // model whose head is tied, where it equals wte. Throws UserError, which names `flag` and the file, if a
  // file or tensor is missing, invalid or of another shape, or if the model is not a supported GPT-2.
  HuggingFaceModel(const std::filesystem::path& directory, std::string_view flag);
  HuggingFaceModel(const HuggingFaceModel&) = delete;
  HuggingFaceModel& operator=(const HuggingFaceModel&) = delete;

  const Gpt2Config& config() const { return config_; }
  // In the order of gpt2_parameter_table(config()). Valid while the object lives.
  const ParameterValues& values() const { return values_; }

 private:
  void map_weights(const std::filesystem::path& directory);
  // Removes all tensors from files_ except those of the table.
  void check_weights();

  Gpt2Config config_;
  ParameterTable table_;
  std::optional<TensorFiles> files_;  // tensors by the names in the table
  ParameterValues values_;
};

// Reads only config.json. Throws UserError, which names `flag` and the file.
Gpt2Config read_config(const std::filesystem::path& directory, std::string_view flag);

// Copies the weights of a file into a model of the same shape. The model may have a shorter context.
void load_weights(
    const HuggingFaceModel& file, Backend& backend, const LanguageModel& model,
    const Heartbeat& beat = [] {});

// The model's directory for a path given by the user: the path itself, or the latest checkpoint if it is a
// run. A symbolic link is resolved once, so that all files come from the same checkpoint while a run writes
// new ones.
std::filesystem::path model_directory(const std::filesystem::path& path);

// The name of the files with the weights, for tensor_files.h.
inline constexpr const char* kModelTensors = "model";

// Writes config.json, generation_config.json and model.safetensors; with a tokenizer also tokenizer.json and
// tokenizer_config.json. `values` are in the order of gpt2_parameter_table(config). The files are on the disk
// when the call returns. Errors are those of OutputFile.
std::vector<FileEntry> write_hugging_face(
    const std::filesystem::path& directory, const Gpt2Config& config, const ParameterValues& values,
    const Tokenizer* tokenizer, const Heartbeat& beat = [] {});

}  // namespace stagegpt
