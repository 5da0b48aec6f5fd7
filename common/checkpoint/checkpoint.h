// A checkpoint: a Hugging Face GPT-2 directory plus the state that is needed to resume training exactly:
// optimizer.safetensors (Adam's moments, by parameter name) and trainer_state.json. Its bytes depend on this
// state and on the number of files only, not on the time, the ranks or the threads.
#pragma once

#include <filesystem>
#include <vector>

#include "common/checkpoint/parameter_values.h"
#include "common/checkpoint/tensor_files.h"
#include "common/checkpoint/trainer_state.h"
#include "common/data/tokenizers/tokenizer.h"
#include "common/io/hashed_file.h"
#include "common/model/gpt2.h"

namespace stagegpt {

// Values in the order of the model's parameter table.
struct CheckpointValues {
  ParameterValues weights;
  MomentValues moments;
};

// The weights and the moments of some parameters.
struct TensorEntries {
  FileEntry weights, moments;
};

// Writes file `file` of both. It asks for the values in the order of file_pieces(table, division[file]): the
// weights, then m, then v. They are on the disk when the call returns. Errors are those of OutputFile.
TensorEntries write_tensors(
    const std::filesystem::path& directory, const Gpt2Config& config, const std::vector<TableRows>& division,
    std::size_t file, const CheckpointValues& values, const Heartbeat& beat = [] {});

// Writes the state, and indexes if there are several files. Returns all files: those of
// write_description(), the tensors, and these.
std::vector<FileEntry> finish_checkpoint(const std::filesystem::path& directory, const Gpt2Config& config,
                                         const std::vector<TableRows>& division,
                                         std::vector<FileEntry> description,
                                         const std::vector<TensorEntries>& tensors,
                                         const TrainerState& state);

// All of these, with one file of each kind. Returns the files, without a manifest.
std::vector<FileEntry> write_checkpoint(const std::filesystem::path& directory, const Gpt2Config& config,
                                        const CheckpointValues& values, const Tokenizer& tokenizer,
                                        const TrainerState& state);

// Reads all files and compares them with the manifest. Throws UserError, which names the file, if a file is
// missing or has changed.
void verify_checkpoint(
    const std::filesystem::path& directory, const Heartbeat& beat = [] {});

// Reads only trainer_state.json. Throws UserError that names the file.
TrainerState read_trainer_state(const std::filesystem::path& directory);

// The moments in a checkpoint, whose files are memory-mapped while the object lives. (The weights are read by
// HuggingFaceModel.)
class MomentFiles {
 public:
  // Reads only the headers. Throws UserError, which names the file, if one is missing, invalid, or of another
  // model. `table` is borrowed.
  MomentFiles(const std::filesystem::path& directory, const ParameterTable& table);
  const MomentValues& values() const { return values_; }

 private:
  TensorFiles files_;
  MomentValues values_;
};

}  // namespace stagegpt
