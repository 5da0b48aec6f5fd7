// A checkpoint: a Hugging Face GPT-2 directory with what it takes to train on exactly where it was made:
// optimizer.safetensors (the moments, by parameter name) and trainer_state.json. Its bytes depend on the
// state alone, not on time, ranks or threads.
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

// Adam's moments, by the model's table.
struct MomentValues {
  ParameterValues m, v;
};

// Writes all files but the manifest; each is on the disk when it returns. Failures throw as OutputFile's do.
std::vector<FileEntry> write_checkpoint(
    const std::filesystem::path& directory, Backend& backend, const Gpt2& model, const MomentValues& moments,
    const Tokenizer& tokenizer, const TrainerState& state, const Heartbeat& beat = [] {});

// Reads all of it, and compares it with its manifest. Throws UserError, naming the file, where one is missing
// or not what it was.
void verify_checkpoint(
    const std::filesystem::path& directory, const Heartbeat& beat = [] {});

// Reads trainer_state.json alone. Throws UserError that names the file.
TrainerState read_trainer_state(const std::filesystem::path& directory);

// Copies one of the moments into an arena of the same table; the weights are a HuggingFaceModel's. Throws
// UserError, naming the file, where it is missing, broken, or that of another model.
void load_moment(const std::filesystem::path& directory, Moment moment, Backend& backend,
                 const ParameterTable& table, const Tensor& arena);

}  // namespace stagegpt
