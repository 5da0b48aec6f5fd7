#include "common/checkpoint/model_file.h"

#include <memory>
#include <utility>

#include "common/base/error.h"
#include "common/checkpoint/hugging_face_model.h"
#include "common/checkpoint/llmc_files.h"
#include "common/checkpoint/manifest.h"
#include "common/io/file.h"

namespace stagegpt {
namespace fs = std::filesystem;

std::optional<fs::path> tokenizer_directory(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored) ? std::optional(model_directory(path)) : std::nullopt;
}

ModelFile open_model(const fs::path& path, std::string_view flag, const Heartbeat& beat) {
  if (const auto directory = tokenizer_directory(path)) {
    verify_named(*directory, flag, beat);
    return read_hugging_face(*directory, flag);
  }
  const auto file = std::make_shared<const MappedFile>(path, flag);
  ModelFile model = parse_llmc_model(file->bytes(), flag);
  model.values = [file, values = std::move(model.values)](std::size_t i, std::int64_t begin,
                                                          std::span<float> out) { values(i, begin, out); };
  return model;
}

void require_model_path(const std::string& path, std::string_view flag) {
  if (path.empty()) user_error(flag, " is missing: expected ", kModelFormats);
}

Gpt2Config read_config(const fs::path& path, std::string_view flag) {
  if (const auto directory = tokenizer_directory(path)) return read_hugging_face_config(*directory, flag);
  return open_model(path, flag).config;
}

}  // namespace stagegpt
