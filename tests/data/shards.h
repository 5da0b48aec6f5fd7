// Makes tokens, and writes and opens small shards of them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <numeric>
#include <vector>

#include "common/data/token_shard.h"

namespace stagegpt::test {

// Tokens 0, 1, 2, …, so that a token tells its position.
inline std::vector<std::int32_t> counting(std::size_t size) {
  std::vector<std::int32_t> tokens(size);
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

inline void write_shard(const std::filesystem::path& path, const std::vector<std::int32_t>& ids,
                        int bytes = 2) {
  TokenShardWriter writer(path, bytes);
  writer.append(ids);
  writer.finish();
}

// A shard that has been verified, which is required before reading.
inline std::shared_ptr<const TokenShard> verified_shard(const std::filesystem::path& path) {
  const auto shard = std::make_shared<TokenShard>(path, "--data");
  shard->expect(shard->verify(INT32_MAX));
  return shard;
}

}  // namespace stagegpt::test
