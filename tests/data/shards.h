// Writes and opens small token shards.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "common/data/token_shard.h"

namespace stagegpt::test {

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
