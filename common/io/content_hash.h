// Hashes that detect changed bytes. They protect against damage, not against forgery.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

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

}  // namespace stagegpt
