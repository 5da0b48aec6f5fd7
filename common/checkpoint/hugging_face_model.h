// A Hugging Face GPT-2 directory: config.json, weights in safetensors (one file or several), a tokenizer.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include "common/checkpoint/model_file.h"
#include "common/data/tokenizers/tokenizer.h"
#include "common/io/content_hash.h"

namespace stagegpt {

// Opens an existing model directory, written by this or another program. Accepts tensor names with or without
// "transformer.". Ignores attention masks, and the output head of a model whose head is tied, where it equals
// wte. Throws UserError, which names `flag` and the file, if a file or tensor is missing, invalid or of
// another shape, or if the model is not a supported GPT-2.
ModelFile read_hugging_face(const std::filesystem::path& directory, std::string_view flag);

// Reads only config.json. Throws UserError, which names `flag` and the file.
Gpt2Config read_hugging_face_config(const std::filesystem::path& directory, std::string_view flag);

// The name of the files with the weights, for tensor_files.h.
inline constexpr const char* kModelTensors = "model";

// Writes config.json, generation_config.json and model.safetensors; with a tokenizer also tokenizer.json and
// tokenizer_config.json. `values` are in the order of gpt2_parameter_table(config). The files are on the disk
// when the call returns. Errors are those of OutputFile.
std::vector<FileEntry> write_hugging_face(
    const std::filesystem::path& directory, const Gpt2Config& config, const ParameterValues& values,
    const Tokenizer* tokenizer, const Heartbeat& beat = [] {});

}  // namespace stagegpt
