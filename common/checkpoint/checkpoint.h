// A checkpoint: a Hugging Face GPT-2 directory plus the state that is needed to resume training exactly:
// optimizer.safetensors (Adam's moments, by parameter name) and trainer_state.json. Its bytes depend on this
// state only, not on the time, the ranks or the threads. Earlier versions divided the tensors among several
// files (tensor_files.h); these are read too.
#pragma once

#include <filesystem>
#include <vector>

#include "common/checkpoint/parameter_values.h"
#include "common/checkpoint/trainer_state.h"
#include "common/data/tokenizers/tokenizer.h"
#include "common/io/content_hash.h"
#include "common/model/gpt2.h"

namespace stagegpt {

// Values in the order of the model's parameter table.
struct CheckpointValues {
  ParameterValues weights;
  MomentValues moments;
};

// Writes all files, and returns them, without a manifest. It asks for the values in the order of the table,
// in pieces: the weights, then m, then v. The files are on the disk when the call returns. Errors are those
// of OutputFile.
std::vector<FileEntry> write_checkpoint(
    const std::filesystem::path& directory, const Gpt2Config& config, const CheckpointValues& values,
    const Tokenizer& tokenizer, const TrainerState& state, const Heartbeat& beat = [] {});

// Reads all files and compares them with the manifest. Throws UserError, which names the file, if a file is
// missing or has changed.
void verify_checkpoint(
    const std::filesystem::path& directory, const Heartbeat& beat = [] {});

// Reads only trainer_state.json. Throws UserError that names the file.
TrainerState read_trainer_state(const std::filesystem::path& directory);

// The moments in a checkpoint; the weights are read by model_file.h. Reads only the headers: the files stay
// mapped as long as a copy of the values lives. Throws UserError, which names the file, if one is missing,
// invalid, or of another model.
MomentValues read_moments(const std::filesystem::path& directory, const ParameterTable& table);

}  // namespace stagegpt
