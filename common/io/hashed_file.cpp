#include "common/io/hashed_file.h"

#include "common/base/json.h"

namespace stagegpt {

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
