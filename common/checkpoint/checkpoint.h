// A checkpoint: a Hugging Face GPT-2 directory plus the state that is needed to resume training exactly:
// optimizer.safetensors (Adam's moments, by parameter name) and trainer_state.json. Its bytes depend on this
// state only, not on the time, the ranks or the threads.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "common/checkpoint/parameter_values.h"
#include "common/checkpoint/trainer_state.h"
#include "common/data/tokenizers/tokenizer.h"
#include "common/io/hashed_file.h"
#include "common/model/gpt2.h"
#include "common/optim/adamw.h"

namespace stagegpt {

// Adam's moments, in the order of the model's parameter table.
struct MomentValues {
  ParameterValues m, v;
};

// Writes all files except the manifest. They are on the disk when the call returns. Errors are those of
// OutputFile.
std::vector<FileEntry> write_checkpoint(
    const std::filesystem::path& directory, Backend& backend, const Gpt2& model, const MomentValues& moments,
    const Tokenizer& tokenizer, const TrainerState& state, const Heartbeat& beat = [] {});

// Reads all files and compares them with the manifest. Throws UserError, which names the file, if a file is
// missing or has changed.
void verify_checkpoint(
    const std::filesystem::path& directory, const Heartbeat& beat = [] {});

// Reads only trainer_state.json. Throws UserError that names the file.
TrainerState read_trainer_state(const std::filesystem::path& directory);

// Copies one of the moments into an arena of the same table. (The weights are loaded by HuggingFaceModel.)
// Throws UserError, which names the file, if it is missing, invalid, or of another model.
void load_moment(
    const std::filesystem::path& directory, Moment moment, Backend& backend, const ParameterTable& table,
    const Tensor& arena, const Heartbeat& beat = [] {});

}  // namespace stagegpt
