#include "common/checkpoint/model_file.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "common/base/error.h"
#include "common/checkpoint/hugging_face_model.h"
#include "common/checkpoint/llmc_files.h"
#include "common/checkpoint/manifest.h"
#include "common/io/file.h"

namespace stagegpt {
namespace fs = std::filesystem;

namespace {

// Throws UserError for one of the files of a directory, which is no model without the others.
void refuse_part_of_directory(const fs::path& path, std::string_view flag) {
  if (file_exists(path) && (path.extension() == ".safetensors" || path.extension() == ".json"))
    user_error(flag, ": expected the directory of ", path, ", with all files of its model");
}

}  // namespace

std::optional<fs::path> directory_of_model(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return std::nullopt;
  const bool is_run = !file_exists(path / "config.json") && file_exists(path / "latest/config.json");
  const fs::path directory = is_run ? path / "latest" : (path / "").parent_path();
  const fs::path target = fs::read_symlink(directory, error);
  return error ? directory : directory.parent_path() / target;
}

ModelFile open_model(const fs::path& path, std::string_view flag, const Heartbeat& beat) {
  // Found once: the run may write a newer checkpoint meanwhile.
  const std::optional<fs::path> directory = directory_of_model(path);
  if (directory) verify_named(*directory, flag, beat);
  return open_verified_model(directory.value_or(path), flag);
}

ModelFile open_verified_model(const fs::path& path, std::string_view flag) {
  std::shared_ptr<const MappedFile> file;
  ModelFile model;
  if (const auto directory = directory_of_model(path)) {
    model = read_hugging_face(*directory, flag);
    model.directory = directory;
  } else {
    refuse_part_of_directory(path, flag);
    file = std::make_shared<const MappedFile>(path, flag);
    model = parse_llmc_model(file->bytes(), flag);
  }
  model.values = [file, values = std::move(model.values), where = concat(flag, ": ", path),
                  table = gpt2_parameter_table(model.config)](std::size_t i, std::int64_t begin,
                                                              std::span<float> out) {
    values(i, begin, out);
    const auto bad = std::ranges::find_if_not(out, [](float value) { return std::isfinite(value); });
    if (bad != out.end()) user_error(where, ": ", table[i].name, " has a value that is not finite");
  };
  return model;
}

void require_model_path(const std::string& path, std::string_view flag) {
  if (path.empty()) user_error(flag, " is missing: expected ", kModelFormats);
}

Gpt2Config read_config(const fs::path& path, std::string_view flag) {
  if (const auto directory = directory_of_model(path)) return read_hugging_face_config(*directory, flag);
  return open_verified_model(path, flag).config;
}

}  // namespace stagegpt
