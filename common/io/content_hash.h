// Hashes that tell whether bytes have changed. They protect against damage, not against forgery.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace stagegpt {

// XXH3 (128 bits) of what was added.
class ContentHash {
 public:
  ContentHash();
  void add(std::span<const std::byte> bytes);
  std::string hexadecimal() const;

 private:
  std::unique_ptr<void, void (*)(void*)> state_;
};

// ContentHash of a text, and of a file's bytes. The second throws as read_blocks() does.
std::string hash_of_text(std::string_view text);
std::string hash_of_file(const std::filesystem::path& path);
// XXH3 (64 bits) of a block.
std::uint64_t block_hash(std::span<const std::byte> block);

}  // namespace stagegpt
