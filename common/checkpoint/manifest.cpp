#include "common/checkpoint/manifest.h"

#include "common/base/json.h"

namespace stagegpt {
namespace {

namespace fs = std::filesystem;

constexpr const char* kManifest = "manifest.json";
constexpr const char* kFormat = "stagegpt checkpoint";
constexpr int kVersion = 1;

// The text of the manifest. It contains the hash of the same text with an empty hash.
std::string manifest_text(const std::vector<FileEntry>& files) {
  Json list = Json::array();
  for (const FileEntry& entry : files) list.push_back(to_json(entry));
  Json json = {{"format", kFormat}, {"version", kVersion}, {"files", std::move(list)}, {"xxh3_128", ""}};
  const std::string text_without_hash = json.dump(2);
  json["xxh3_128"] = hash_of_text(text_without_hash);
  return json.dump(2) + '\n';
}

std::vector<FileEntry> parse_entries(std::string_view text) {
  const nlohmann::json json = parse_json(text);
  return read_json([&] {
    if (json.at("format") != kFormat || json.at("version") != kVersion) {
      user_error("not version ", kVersion, " of '", kFormat, "'");
    }
    std::vector<FileEntry> files;
    for (const nlohmann::json& entry : json.at("files")) {
      files.push_back({entry.at("file").get<std::string>(), natural_number(entry.at("bytes"), "'bytes'"),
                       entry.at("xxh3_128").get<std::string>()});
      const std::string& name = files.back().file;
      const bool has_nul = name.find('\0') != name.npos;
      if (name.empty() || has_nul || name != fs::path(name).filename() || name == "." || name == "..") {
        user_error("'", name.substr(0, 80), "' is not the name of a file");
      }
    }
    return files;
  });
}

}  // namespace

std::vector<FileEntry> parse_manifest(std::string_view text) {
  std::vector<FileEntry> files = parse_entries(text);
  // A manifest is valid only if it is exactly the text that write_manifest() would write.
  if (text != manifest_text(files)) user_error("it has been changed since it was written");
  return files;
}

void write_manifest(const fs::path& directory, const std::vector<FileEntry>& files) {
  write_file(directory / kManifest, manifest_text(files));
}

std::vector<FileEntry> verify_manifest(const fs::path& directory, Verified what, const Heartbeat& beat) {
  const fs::path path = directory / kManifest;
  const std::vector<FileEntry> files =
      naming(path, [&] { return parse_manifest(MappedFile(path, "checkpoint").text()); });
  for (const FileEntry& expected : files) {
    const fs::path file = directory / expected.file;
    std::error_code error;
    const std::uint64_t bytes = fs::file_size(file, error);
    if (error) user_error(file, " is missing: ", error.message());
    if (bytes != expected.bytes) {
      user_error(file, " has ", bytes, " bytes, the manifest says ", expected.bytes);
    }
    if (what == Verified::model && expected.file.starts_with(kOptimizerTensors)) continue;
    const PageCache cache = what == Verified::all ? PageCache::avoid : PageCache::use;
    if (file_entry(file, cache, beat) != expected)
      user_error(file, " is damaged: its hash differs from that in the manifest");
  }
  return files;
}

void verify_named(const fs::path& directory, std::string_view flag, const Heartbeat& beat) {
  if (!file_exists(directory / kManifest)) return;
  naming(flag, [&] { verify_manifest(directory, Verified::model, beat); });
}

}  // namespace stagegpt
