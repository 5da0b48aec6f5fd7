// Hashes that detect changed bytes. They protect against damage, not against forgery.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "common/base/heartbeat.h"
#include "common/base/json_fwd.h"
#include "common/io/file.h"
#include "common/io/output_file.h"

namespace stagegpt {

// XXH3 (128 bits) of the bytes that were added.
class ContentHash {
 public:
  ContentHash();
  void add(std::span<const std::byte> bytes);
  std::string hexadecimal() const;

 private:
  std::unique_ptr<void, void (*)(void*)> state_;
};

// The hash of a text.
std::string hash_of_text(std::string_view text);
// XXH3 (64 bits) of a block.
std::uint64_t block_hash(std::span<const std::byte> block);
// The hash of a file's bytes. Throws as read_blocks() does.
std::string hash_of_file(const std::filesystem::path& path);

// An entry of a manifest.
struct FileEntry {
  std::string file;  // the file name without directories
  std::uint64_t bytes = 0;
  std::string xxh3_128;

  bool operator==(const FileEntry&) const = default;
};

// A file that is hashed while it is written. Errors are those of OutputFile.
class HashedFile {
 public:
  explicit HashedFile(const std::filesystem::path& path) : path_(path), file_(path) {}

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  // Returns when the file is on the disk.
  FileEntry finish();

 private:
  std::filesystem::path path_;
  OutputFile file_;
  ContentHash hash_;
  std::uint64_t bytes_ = 0;
};

// Writes a whole file at once.
FileEntry write_hashed(const std::filesystem::path& path, std::string_view text);

// The entry of an existing file. Throws std::runtime_error if it cannot be read.
FileEntry file_entry(
    const std::filesystem::path& path, PageCache cache = PageCache::avoid, const Heartbeat& beat = [] {});

Json to_json(const FileEntry& entry);

}  // namespace stagegpt
