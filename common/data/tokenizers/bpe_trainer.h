// Trains byte-pair encoding: learns its merges (Sennrich et al., 2016, algorithm 1).
#pragma once

#include <memory>
#include <span>

#include "common/data/tokenizers/bpe_tokenizer.h"
#include "common/data/tokenizers/piece_counts.h"

namespace stagegpt {

// The first `count` merges. Each merges the most frequent pair of neighbouring tokens; of equally frequent
// pairs the one with the smaller ids (left, then right). There are fewer merges if no pair occurs twice any
// more. The first 256 ids are the bytes in GPT-2's order. Throws Stopped after a stop signal.
//
// The merges equal those of Hugging Face's BpeTrainer with min_frequency 2 and an initial alphabet of all
// bytes. As there, a run such as "aaa" counts as two pairs although only one of them can be merged.
std::vector<Merge> train_merges(std::span<const PieceCount> pieces, std::size_t count);

// Byte-level BPE with at most `vocab_size` tokens: bytes, merges, end of text. Throws UserError, which names
// --vocab-size, if it is too small for the bytes.
std::unique_ptr<BpeTokenizer> train_bpe(const PieceCounts& counts, std::int64_t vocab_size);

}  // namespace stagegpt
