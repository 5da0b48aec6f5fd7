#include "common/io/content_hash.h"

#include <xxhash.h>

#include <cstdio>
#include <new>

#include "common/base/json.h"
#include "common/io/file.h"

namespace stagegpt {

ContentHash::ContentHash()
    : state_(XXH3_createState(), [](void* state) { XXH3_freeState(static_cast<XXH3_state_t*>(state)); }) {
  if (!state_) throw std::bad_alloc();
  XXH3_128bits_reset(static_cast<XXH3_state_t*>(state_.get()));
}

void ContentHash::add(std::span<const std::byte> bytes) {
  XXH3_128bits_update(static_cast<XXH3_state_t*>(state_.get()), bytes.data(), bytes.size());
}

std::string ContentHash::hexadecimal() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(static_cast<const XXH3_state_t*>(state_.get()));
  char text[33];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                static_cast<unsigned long long>(hash.low64));
  return text;
}

std::string hash_of_text(std::string_view text) {
  ContentHash hash;
  hash.add(std::as_bytes(std::span(text)));
  return hash.hexadecimal();
}

std::uint64_t block_hash(std::span<const std::byte> block) { return XXH3_64bits(block.data(), block.size()); }

std::string hash_of_file(const std::filesystem::path& path) {
  return file_entry(path, PageCache::use).xxh3_128;
}

void HashedFile::write(std::span<const std::byte> bytes) {
  file_.write(bytes);
  hash_.add(bytes);
  bytes_ += bytes.size();
}

FileEntry HashedFile::finish() {
  file_.sync();
  return {path_.filename(), bytes_, hash_.hexadecimal()};
}

FileEntry write_hashed(const std::filesystem::path& path, std::string_view text) {
  HashedFile file(path);
  file.write(text);
  return file.finish();
}

FileEntry file_entry(const std::filesystem::path& path, PageCache cache, const Heartbeat& beat) {
  ContentHash hash;
  std::uint64_t bytes = 0;
  read_blocks(path, cache, [&](std::span<const std::byte> block) {
    hash.add(block);
    bytes += block.size();
    beat();
  });
  return {path.filename(), bytes, hash.hexadecimal()};
}

Json to_json(const FileEntry& entry) {
  return {{"file", entry.file}, {"bytes", entry.bytes}, {"xxh3_128", entry.xxh3_128}};
}

}  // namespace stagegpt
