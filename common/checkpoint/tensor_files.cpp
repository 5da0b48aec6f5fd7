#include "common/checkpoint/tensor_files.h"

#include <algorithm>
#include <cstdio>
#include <map>

#include "common/base/json.h"

namespace stagegpt {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEnding = ".safetensors";

}  // namespace

std::string tensor_file_name(std::string_view name, std::size_t file, std::size_t files) {
  if (files == 1) return concat(name, kEnding);
  char part[48];
  std::snprintf(part, sizeof part, "-%05zu-of-%05zu", file + 1, files);
  return concat(name, part, kEnding);
}

std::string tensor_index_name(std::string_view name) { return concat(name, kEnding, ".index.json"); }

std::vector<TableRows> divide_among_files(const ParameterTable& table, int files) {
  const std::size_t n = std::min(static_cast<std::size_t>(files), table.size());
  std::vector<TableRows> division;
  std::size_t next = 0;
  std::int64_t before = 0;  // elements of the parameters before `next`
  for (std::size_t file = 1; file <= n; ++file) {
    // Up to the parameter whose middle lies behind this file's share; one is left for each other file.
    const double share =
        static_cast<double>(table.numel()) / static_cast<double>(n) * static_cast<double>(file);
    const auto fits = [&](std::int64_t numel) {
      return static_cast<double>(before) + static_cast<double>(numel) / 2 <= share;
    };
    const std::size_t first = next, last = table.size() - (n - file);
    while (next < last && (next == first || file == n || fits(table[next].shape.numel())))
      before += table[next++].shape.numel();
    division.push_back({first, next});
  }
  return division;
}

std::string tensor_index(std::string_view name, const ParameterTable& table,
                         const std::vector<std::string>& prefixes, const std::vector<TableRows>& division) {
  std::map<std::string, std::string> files;
  for (std::size_t file = 0; file < division.size(); ++file) {
    for (std::size_t i = division[file].begin; i < division[file].end; ++i) {
      for (const std::string& prefix : prefixes)
        files[prefix + table[i].name] = tensor_file_name(name, file, division.size());
    }
  }
  const auto bytes = sizeof(float) * prefixes.size() * static_cast<std::uint64_t>(table.numel());
  return Json{{"metadata", {{"total_size", bytes}}}, {"weight_map", files}}.dump(2) + '\n';
}

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
  const fs::path single = directory / tensor_file_name(name, 0, 1),
                 index = directory / tensor_index_name(name);
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
