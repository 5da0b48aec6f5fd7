#include "common/data/prepared_data.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>

#include "common/base/error.h"
#include "common/base/json.h"
#include "common/io/content_hash.h"

namespace stagegpt {
namespace {

namespace fs = std::filesystem;

constexpr const char* kManifest = "manifest.json";
constexpr const char* kFormat = "stagegpt prepared data";
constexpr int kFormatVersion = 1;

// Opens a directory, which is created if it does not exist, and locks it against other processes.
FileDescriptor lock_directory(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) user_error("--output: cannot create ", path, ": ", error.message());
  FileDescriptor lock(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (!lock.is_open()) user_error("--output: cannot open ", path, ": ", std::strerror(errno));
  if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) user_error("--output: another process is writing ", path);
  struct stat opened {};
  struct stat there {};
  const bool same =
      fstat(lock.get(), &opened) == 0 && stat(path.c_str(), &there) == 0 && opened.st_ino == there.st_ino;
  if (!same) user_error("--output: another process has just written ", path);
  return lock;
}

// Throws UserError unless a directory can be renamed to `path`: nothing exists there, or an empty directory.
void require_free(const fs::path& path) {
  std::error_code error;
  if (path == "." || path.filename() == ".." || fs::is_symlink(path, error)) {
    user_error("--output: ", path, " cannot be replaced, name a new directory");
  }
  if (!fs::exists(path, error)) return;
  if (!fs::is_directory(path, error) || !fs::is_empty(path, error)) {
    user_error("--output: ", path, " exists already; remove it, or name another");
  }
  struct stat here {};
  struct stat above {};
  const fs::path parent = fs::absolute(path).parent_path();
  if (stat(path.c_str(), &here) != 0 || stat(parent.c_str(), &above) != 0 || here.st_dev != above.st_dev) {
    user_error("--output: ", path, " is a mount point and cannot be replaced, name a directory in it");
  }
}

// Removes a file that an interrupted run has left. Throws UserError for any other file.
void remove_left_over(const fs::directory_entry& entry) {
  const std::string name = entry.path().filename();
  const bool ours = entry.is_regular_file() &&
                    (name.starts_with("train_") || name.starts_with("val_") ||
                     name.starts_with("tokenizer.") || name.starts_with("spool.") || name == kManifest);
  if (!ours)
    user_error("--output: ", entry.path(),
               " was not made by prepare_data; move it away, or name another directory");
  fs::remove(entry.path());
}

}  // namespace

PreparedDataWriter::PreparedDataWriter(const fs::path& directory, std::int64_t shard_tokens)
    : directory_(directory.lexically_normal()), shard_tokens_(shard_tokens) {
  if (directory_.filename().empty()) directory_ = directory_.parent_path();  // "out/" is "out"
  const fs::path partial = directory_.string() + ".partial";
  require_free(directory_);
  lock_ = lock_directory(partial);
  require_free(directory_);  // another process may have created it in the meantime
  partial_ = partial;
  for (const fs::directory_entry& left : fs::directory_iterator(partial_)) remove_left_over(left);
  // Readers reject this manifest, so that they do not accept the finished shards of an unfinished directory.
  write_file(partial_ / kManifest, "{\"format\": \"unfinished\"}\n");
}

PreparedDataWriter::~PreparedDataWriter() {
  std::error_code ignored;
  if (!committed_) fs::remove_all(partial_, ignored);
}

void PreparedDataWriter::write_tokenizer(const Tokenizer& tokenizer) {
  token_bytes_ = token_bytes(tokenizer.size());
  tokenizer.save(partial_ / "tokenizer.json");
  try {
    tokenizer.save(partial_ / "tokenizer.bin");
  } catch (const UserError& error) {
    std::cerr << "note: no tokenizer.bin, which llm.c's programs read: " << error.what() << '\n';
  }
}

void PreparedDataWriter::append(std::span<const std::int32_t> ids) {
  while (!ids.empty()) {
    if (!shard_) {
      char name[32];
      std::snprintf(name, sizeof name, "_%06zu.bin", shards_.size());
      shard_path_ = partial_ / (part_ + name);
      shard_ = std::make_unique<TokenShardWriter>(shard_path_, token_bytes_);
    }
    const auto room = static_cast<std::size_t>(shard_tokens_ - shard_->size());
    shard_->append(ids.first(std::min(room, ids.size())));
    ids = ids.subspan(std::min(room, ids.size()));
    if (shard_->size() == shard_tokens_) end_shard();
  }
}

void PreparedDataWriter::end_shard() {
  const std::int64_t tokens = shard_->size();
  shard_->finish();
  shard_.reset();
  Json entry = to_json(file_entry(shard_path_));
  entry["tokens"] = tokens;
  shards_.push_back(std::move(entry));
}

Json PreparedDataWriter::end_part() {
  if (shard_) end_shard();
  std::int64_t tokens = 0;
  for (const auto& shard : shards_) tokens += shard["tokens"].get<std::int64_t>();
  return {{"tokens", tokens}, {"shards", std::exchange(shards_, Json::array())}};
}

void PreparedDataWriter::commit(const Json& manifest) {
  Json json = {{"format", kFormat}, {"version", kFormatVersion}};
  json.update(manifest);
  write_file(partial_ / kManifest, json_text(json));
  sync_directory(partial_);
  std::error_code error;
  fs::rename(partial_, directory_, error);
  if (error)
    throw std::runtime_error(concat("cannot rename ", partial_, " to ", directory_, ": ", error.message()));
  committed_ = true;
  sync_directory(fs::absolute(directory_).parent_path());
}

void ManifestCheck::require(const fs::path& path, const std::string& hash, std::string_view flag) {
  const Entries* listed = entries(path.parent_path(), flag);
  if (listed == nullptr) return;
  const auto entry = listed->find(path.filename().string());
  if (entry == listed->end())
    user_error(flag, ": ", path, " is not listed in ", kManifest, " in its directory");
  if (entry->second != hash) {
    user_error(flag, ": ", path, " has changed: its hash differs from that in ", kManifest);
  }
}

const ManifestCheck::Entries* ManifestCheck::entries(const fs::path& directory, std::string_view flag) {
  const auto [known, is_new] = manifests_.try_emplace(directory);
  std::error_code ignored;
  const fs::path path = directory / kManifest;
  if (!is_new || !fs::exists(path, ignored)) return known->second.get();
  const MappedFile file(path, flag);
  try {
    const nlohmann::json json = parse_json(file.text());
    auto listed = std::make_unique<Entries>();
    read_json([&] {
      if (json.at("format") != kFormat || json.at("version") != kFormatVersion)
        user_error("not version 1 of ", kFormat);
      const auto add = [&](const nlohmann::json& entry) {
        listed->emplace(entry.at("file").get<std::string>(), entry.at("xxh3_128").get<std::string>());
      };
      add(json.at("tokenizer"));
      for (const char* part : {"train", "val"}) {
        for (const auto& shard : json.at(part).at("shards")) add(shard);
      }
    });
    for (const auto& [name, hash] : *listed) {
      if (!fs::exists(directory / name, ignored)) user_error("it lists ", name, ", which is missing");
    }
    known->second = std::move(listed);
  } catch (const UserError& error) {
    user_error(flag, ": ", path, ": ", error.what());
  }
  return known->second.get();
}

}  // namespace stagegpt
