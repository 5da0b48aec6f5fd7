#include "common/checkpoint/checkpoint.h"

#include <algorithm>
#include <set>
#include <string>

#include "common/checkpoint/hugging_face_model.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/tensor_files.h"

namespace stagegpt {
namespace {

namespace fs = std::filesystem;

constexpr const char* kState = "trainer_state.json";
// PyTorch's names for Adam's moments.
constexpr const char *kFirstMoment = "exp_avg.", *kSecondMoment = "exp_avg_sq.";

}  // namespace

std::vector<FileEntry> write_checkpoint(const fs::path& directory, const Gpt2Config& config,
                                        const CheckpointValues& values, const Tokenizer& tokenizer,
                                        const TrainerState& state, const Heartbeat& beat) {
  beat();
  const CheckpointValues beating = {
      with_heartbeat(values.weights, beat),
      {with_heartbeat(values.moments.m, beat), with_heartbeat(values.moments.v, beat)}};
  std::vector<FileEntry> files = write_hugging_face(directory, config, beating.weights, &tokenizer, beat);
  files.push_back(write_parameters(directory / tensor_file_name(kOptimizerTensors),
                                   gpt2_parameter_table(config),
                                   {{kFirstMoment, beating.moments.m}, {kSecondMoment, beating.moments.v}}));
  beat();
  files.push_back(write_hashed(directory / kState, to_json_text(state)));
  beat();
  return files;
}

void verify_checkpoint(const fs::path& directory, const Heartbeat& beat) {
  const std::vector<FileEntry> files = verify_manifest(directory, Verified::all, beat);
  const auto lists = [&](const std::string& name) {
    return std::ranges::find(files, name, &FileEntry::file) != files.end();
  };
  std::set<std::string> required = {"config.json", "tokenizer.json", kState};
  for (const char* name : {kModelTensors, kOptimizerTensors}) {  // one file each, or all files of an index
    const std::string index = tensor_index_name(name);
    required.merge(lists(index) ? files_of_index(directory / index) : std::set{tensor_file_name(name)});
  }
  for (const std::string& name : required) {
    if (!lists(name)) user_error(directory, ": the manifest does not list ", name);
  }
}

TrainerState read_trainer_state(const fs::path& directory) {
  const fs::path path = directory / kState;
  const MappedFile file(path, "checkpoint");
  return naming(path, [&] { return parse_trainer_state(file.text()); });
}

MomentValues read_moments(const fs::path& directory, const ParameterTable& table) {
  const auto files = std::make_shared<TensorFiles>(directory, kOptimizerTensors);
  return naming(files->path(), [&] {
    return MomentValues{file_values(files, table, kFirstMoment), file_values(files, table, kSecondMoment)};
  });
}

}  // namespace stagegpt
