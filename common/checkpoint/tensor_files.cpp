#include "common/checkpoint/tensor_files.h"

#include "common/base/json.h"

namespace stagegpt {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEnding = ".safetensors";

}  // namespace

std::string tensor_file_name(std::string_view name) { return concat(name, kEnding); }

std::string tensor_index_name(std::string_view name) { return concat(name, kEnding, ".index.json"); }

std::set<std::string> files_of_index(const fs::path& index) {
  return naming(index, [&] {
    const MappedFile file(index, index.filename().string());
    const nlohmann::json json = parse_json(file.text());
    return read_json([&] {
      std::set<std::string> files;
      for (const auto& [tensor, name] : json.at("weight_map").items()) {
        const auto text = name.get<std::string>();
        if (text.empty() || fs::path(text).filename() != text)
          user_error("'", text.substr(0, 80), "' is not the name of a file");
        files.insert(text);
      }
      return files;
    });
  });
}

TensorFiles::TensorFiles(const fs::path& directory, std::string_view name, const Rename& rename) {
  const fs::path single = directory / tensor_file_name(name), index = directory / tensor_index_name(name);
  path_ = file_exists(single) || !file_exists(index) ? single : index;
  if (path_ == single) {
    map(single, rename);
  } else {
    for (const std::string& file : files_of_index(index)) map(directory / file, rename);
  }
}

void TensorFiles::map(const fs::path& path, const Rename& rename) {
  files_.push_back(std::make_unique<MappedFile>(path, path_.filename().string()));
  naming(path, [&] {
    for (auto& [tensor, view] : parse_safetensors(files_.back()->bytes())) {
      const std::optional<std::string> renamed = rename(tensor);
      if (renamed && !tensors_.emplace(*renamed, std::move(view)).second)
        user_error("the tensor ", *renamed, " occurs twice");
    }
  });
}

}  // namespace stagegpt
