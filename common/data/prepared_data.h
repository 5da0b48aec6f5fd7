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

// Writes such a directory. It is named DIR.partial until it is complete. The next run removes what an
// interrupted run has left there.
class PreparedDataWriter {
 public:
  // Throws UserError if `directory` exists and is not empty, or if another process is writing it.
  PreparedDataWriter(const std::filesystem::path& directory, std::int64_t shard_tokens);
  ~PreparedDataWriter();
  PreparedDataWriter(const PreparedDataWriter&) = delete;
  PreparedDataWriter& operator=(const PreparedDataWriter&) = delete;

  // The directory that is being written: DIR.partial.
  const std::filesystem::path& partial() const { return partial_; }

  // Call write_tokenizer() first. Then, for each part ("train", "val"), begin_part(), append() and
  // end_part().
  void write_tokenizer(const Tokenizer& tokenizer);
  void begin_part(const std::string& name) { part_ = name; }
  void append(std::span<const std::int32_t> ids);
  // Returns the manifest's entry for the part: its tokens and shards.
  Json end_part();

  // Writes the manifest and renames the directory to its final name.
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

// Compares files with the manifests in their directories, if there are any.
class ManifestCheck {
 public:
  // Throws UserError, which names `flag` and the file, if the manifest does not list the file, lists another
  // hash, or lists files that are missing.
  void require(const std::filesystem::path& path, const std::string& hash, std::string_view flag);

 private:
  using Entries = std::map<std::string, std::string>;  // hashes by file name

  // Null if there is no manifest.
  const Entries* entries(const std::filesystem::path& directory, std::string_view flag);

  std::map<std::filesystem::path, std::unique_ptr<Entries>> manifests_;
};

}  // namespace stagegpt
