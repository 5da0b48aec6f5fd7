// A directory of prepared data: train_000000.bin …, val_000000.bin …, tokenizer.json, tokenizer.bin,
// manifest.json.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "common/base/json.h"
#include "common/data/token_shard.h"
#include "common/data/tokenizers/tokenizer.h"
#include "common/io/file.h"

namespace stagegpt {

// Writes one, under another name until it is whole: DIR.partial. What an interrupted run leaves there is
// removed by the next.
class PreparedDataWriter {
 public:
  // Throws UserError when `directory` exists and is not empty, or another process is writing it.
  PreparedDataWriter(const std::filesystem::path& directory, std::int64_t shard_tokens);
  ~PreparedDataWriter();
  PreparedDataWriter(const PreparedDataWriter&) = delete;
  PreparedDataWriter& operator=(const PreparedDataWriter&) = delete;

  // Where it is written for now.
  const std::filesystem::path& partial() const { return partial_; }

  // First the tokenizer, then the tokens of each part ("train", "val"), from begin_part to end_part.
  void write_tokenizer(const Tokenizer& tokenizer);
  void begin_part(const std::string& name) { part_ = name; }
  void append(std::span<const std::int32_t> ids);
  // What the manifest says of the part: tokens and shards.
  Json end_part();

  // Writes the manifest and gives the directory its name.
  void commit(const Json& manifest);

 private:
  void end_shard();

  std::filesystem::path directory_, partial_;
  FileDescriptor lock_;
  std::int64_t shard_tokens_;
  int token_bytes_ = 2;
  std::string part_;
  std::unique_ptr<TokenShardWriter> shard_;
  std::filesystem::path shard_path_;
  Json shards_ = Json::array();
  bool committed_ = false;
};

// Compares files with the manifests beside them, where there are any.
class ManifestCheck {
 public:
  // Throws UserError, naming `flag` and the file, when the manifest does not list it, lists another hash,
  // or lists files that are missing.
  void require(const std::filesystem::path& path, const std::string& hash, std::string_view flag);

 private:
  using Entries = std::map<std::string, std::string>;  // hashes by name

  // Null where there is no manifest.
  const Entries* entries(const std::filesystem::path& directory, std::string_view flag);

  std::map<std::filesystem::path, std::unique_ptr<Entries>> manifests_;
};

}  // namespace stagegpt
