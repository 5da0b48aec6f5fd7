#include "common/checkpoint/checkpoint.h"

#include <algorithm>

#include "common/checkpoint/hugging_face_model.h"
#include "common/checkpoint/manifest.h"

namespace stagegpt {
namespace {

namespace fs = std::filesystem;

constexpr const char* kState = "trainer_state.json";
// PyTorch's names for Adam's moments.
constexpr const char *kFirstMoment = "exp_avg.", *kSecondMoment = "exp_avg_sq.";

}  // namespace

std::vector<FileEntry> write_checkpoint(const fs::path& directory, Backend& backend, const Gpt2& model,
                                        const MomentValues& moments, const Tokenizer& tokenizer,
                                        const TrainerState& state, const Heartbeat& beat) {
  const Parameters& parameters = model.parameters();
  const ParameterTable& table = parameters.table();
  std::vector<FileEntry> files = write_hugging_face(
      directory, model.config(), with_heartbeat(arena_values(backend, table, parameters.weights()), beat),
      &tokenizer, beat);
  files.push_back(write_parameters(
      directory / kOptimizerFile, table,
      {{kFirstMoment, with_heartbeat(moments.m, beat)}, {kSecondMoment, with_heartbeat(moments.v, beat)}}));
  beat();
  files.push_back(write_hashed(directory / kState, to_json_text(state)));
  beat();
  return files;
}

void verify_checkpoint(const fs::path& directory, const Heartbeat& beat) {
  const std::vector<FileEntry> files = verify_manifest(directory, Verified::all, beat);
  for (const char* name : {"config.json", "model.safetensors", "tokenizer.json", kOptimizerFile, kState}) {
    if (std::ranges::find(files, name, &FileEntry::file) == files.end()) {
      user_error(directory, ": the manifest does not list ", name);
    }
  }
}

TrainerState read_trainer_state(const fs::path& directory) {
  const fs::path path = directory / kState;
  const MappedFile file(path, "checkpoint");
  return naming(path, [&] { return parse_trainer_state(file.text()); });
}

void load_moment(const fs::path& directory, Moment moment, Backend& backend, const ParameterTable& table,
                 const Tensor& arena, const Heartbeat& beat) {
  const fs::path path = directory / kOptimizerFile;
  const MappedFile file(path, "checkpoint");
  naming(path, [&] {
    const SafetensorsViews tensors = parse_safetensors(file.bytes());
    const char* prefix = moment == &Moments::m ? kFirstMoment : kSecondMoment;
    load_values(backend, table, arena, with_heartbeat(safetensors_values(table, tensors, prefix), beat));
  });
}

}  // namespace stagegpt
