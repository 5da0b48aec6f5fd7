// Token shards, read whole once by all ranks together.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/comm/rank_group.h"
#include "common/data/token_shard.h"

namespace stagegpt {

// Shard i is verified by rank i % size, which tells the others what it holds; each of them sees that its own
// file has the same size, beginning and end (see TokenShard::expect), and compares the rest as it reads it.
// So where ranks have copies of their own, a damaged one is found too. All ranks make the same call with as
// many shards. Throws AgreedUserError, naming `flag`, where ranks have different shards; what
// TokenShard::verify() throws on one rank, on all.
void verify_shards(RankGroup& group, const std::vector<std::shared_ptr<TokenShard>>& shards,
                   std::int64_t vocab_size, const char* flag);

}  // namespace stagegpt
