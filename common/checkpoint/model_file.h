// A model in files of any supported format: a Hugging Face GPT-2 directory, of which runs and checkpoints are
// examples, or llm.c's model file.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "common/checkpoint/parameter_values.h"
#include "common/model/gpt2.h"

namespace stagegpt {

// What open_model() opens, for the help of a flag.
inline constexpr const char* kModelFormats =
    "a run, a checkpoint, any Hugging Face GPT-2 directory, or llm.c's model file";

struct ModelFile {
  Gpt2Config config;
  ParameterValues values;  // in the order of gpt2_parameter_table(config)
  // With the tokenizer; of a run, its latest checkpoint when the model was opened. Nothing for llm.c's file.
  std::optional<std::filesystem::path> directory = std::nullopt;
};

// Opens a model that the user named by `flag`, after its files were compared with their manifest, if they
// have one. Of a run it is the latest checkpoint. The files stay mapped as long as a copy of `values` lives;
// it throws UserError, which names the parameter, for a value that is not finite. Throws UserError, which
// names `flag` and the file.
ModelFile open_model(
    const std::filesystem::path& path, std::string_view flag, const Heartbeat& beat = [] {});

// The same for files that were compared with their manifest before.
ModelFile open_verified_model(const std::filesystem::path& path, std::string_view flag);

// Throws UserError if no model is named.
void require_model_path(const std::string& path, std::string_view flag);

// The configuration alone of open_verified_model(): reads only config.json or the header.
Gpt2Config read_config(const std::filesystem::path& path, std::string_view flag);

// The directory of a model, of a run its latest checkpoint; nothing for llm.c's file. A symbolic link is
// resolved once, so that all files come from the same checkpoint while a run writes new ones.
std::optional<std::filesystem::path> directory_of_model(const std::filesystem::path& path);

}  // namespace stagegpt
