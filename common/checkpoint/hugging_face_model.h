// A Hugging Face GPT-2 directory: config.json, weights in safetensors (one file or several), a tokenizer.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/checkpoint/parameter_file.h"
#include "common/data/tokenizers/tokenizer.h"
#include "common/io/file.h"
#include "common/model/gpt2.h"

namespace stagegpt {

// One that is there: ours or anybody's. Its files stay mapped while the object lives.
class HuggingFaceModel {
 public:
  // Names with or without "transformer."; attention masks and an output head equal to wte are ignored.
  // Throws UserError, naming `flag` and the file, where something is missing, broken, of another shape, or
  // makes a model that this GPT-2 is not.
  HuggingFaceModel(const std::filesystem::path& directory, std::string_view flag);
  HuggingFaceModel(const HuggingFaceModel&) = delete;
  HuggingFaceModel& operator=(const HuggingFaceModel&) = delete;

  const Gpt2Config& config() const { return config_; }
  // By gpt2_parameter_table(config()), while the object lives.
  const ParameterValues& values() const { return values_; }

 private:
  void map_weights(const std::filesystem::path& directory);
  void map_file(const std::filesystem::path& path);
  // Leaves the table's tensors alone.
  void check_weights();

  Gpt2Config config_;
  ParameterTable table_;
  std::vector<std::unique_ptr<MappedFile>> files_;
  SafetensorsViews weights_;  // by the table's names
  ParameterValues values_;
};

// Reads config.json alone. Throws UserError, naming `flag` and the file.
Gpt2Config read_config(const std::filesystem::path& directory, std::string_view flag);

// Copies its weights into a model of the same shape, which may have a shorter context.
void load_weights(const HuggingFaceModel& file, Backend& backend, const Gpt2& model);

// What a user may call a model's directory: itself, or a run that has a latest checkpoint. A link to a
// checkpoint is followed once, so that all files come from one while a run goes on.
std::filesystem::path model_directory(const std::filesystem::path& path);

// Writes config.json, generation_config.json, model.safetensors, and with a tokenizer tokenizer.json and
// tokenizer_config.json; each is on the disk when it returns. Values go by gpt2_parameter_table(config).
// Failures throw as OutputFile's do.
std::vector<FileEntry> write_hugging_face(
    const std::filesystem::path& directory, const Gpt2Config& config, const ParameterValues& values,
    const Tokenizer* tokenizer, const Heartbeat& beat = [] {});

}  // namespace stagegpt
