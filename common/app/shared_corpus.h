// The corpus, on every rank.
#pragma once

#include "common/comm/rank_group.h"
#include "common/data/corpus.h"

namespace stagegpt {

// Rank 0 makes or loads the tokenizer and gives it to the others; then follows load_corpus(). What fails on
// one rank, fails on all.
Corpus load_shared_corpus(RankGroup& group, const CorpusConfig& config, std::int64_t block_size, int threads);

}  // namespace stagegpt
