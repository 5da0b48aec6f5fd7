#include "common/data/verify_shards.h"

#include <cstring>
#include <string>

#include "common/comm/agreement.h"
#include "common/io/content_hash.h"

namespace stagegpt {
namespace {

// The hash of the file, then the hashes of the blocks as they are in memory.
std::string to_message(const ShardContent& content) {
  const std::span hashes = std::as_bytes(std::span(content.block_hashes));
  return content.hash + std::string(reinterpret_cast<const char*>(hashes.data()), hashes.size());
}

ShardContent from_message(const std::string& message) {
  constexpr std::size_t kHash = 32;  // hexadecimal digits
  ShardContent content;
  content.hash = message.substr(0, kHash);
  content.block_hashes.resize((message.size() - kHash) / sizeof(std::uint64_t));
  std::memcpy(content.block_hashes.data(), message.data() + kHash, message.size() - kHash);
  return content;
}

// The number of shards and their sizes, as text.
std::string sizes_of(const std::vector<std::shared_ptr<TokenShard>>& shards) {
  std::int64_t tokens = 0;
  std::string sizes;
  for (const auto& shard : shards) {
    tokens += shard->size();
    sizes += concat(shard->size(), ' ');
  }
  return concat(shards.size(), " shards of ", tokens, " tokens, with hash ", hash_of_text(sizes),
                " of their sizes");
}

}  // namespace

void verify_shards(RankGroup& group, const std::vector<std::shared_ptr<TokenShard>>& shards,
                   std::int64_t vocab_size, const char* flag) {
  require_same(group, {{flag, sizes_of(shards)}});
  const auto owner = [&](std::size_t shard) {
    return static_cast<int>(shard % static_cast<std::size_t>(group.size()));
  };
  std::vector<ShardContent> contents(shards.size());
  agree(group, [&] {
    for (std::size_t i = 0; i < shards.size(); ++i) {
      if (owner(i) == group.rank()) contents[i] = shards[i]->verify(vocab_size);
    }
  });
  for (std::size_t i = 0; i < shards.size(); ++i) {
    if (group.size() > 1)
      contents[i] = from_message(broadcast_text(group, to_message(contents[i]), owner(i)));
  }
  agree(group, [&] {
    for (std::size_t i = 0; i < shards.size(); ++i) shards[i]->expect(std::move(contents[i]));
  });
}

}  // namespace stagegpt
