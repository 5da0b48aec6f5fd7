// Verifies token shards; the ranks share the work.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/comm/rank_group.h"
#include "common/data/token_shard.h"

namespace stagegpt {

// Rank i % size verifies shard i and broadcasts its hashes. Every rank checks that its own file has the same
// size, first block and last block (see TokenShard::expect), and compares the other blocks when it reads
// them. So a damaged copy is found even if each rank has copies of its own. All ranks must call this with the
// same number of shards. Throws AgreedUserError, which names `flag`, if ranks have different shards. An error
// of TokenShard::verify() on one rank is thrown on all ranks.
void verify_shards(RankGroup& group, const std::vector<std::shared_ptr<TokenShard>>& shards,
                   std::int64_t vocab_size, const char* flag);

}  // namespace stagegpt
