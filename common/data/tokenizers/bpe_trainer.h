// Learning the merges of byte-pair encoding (Sennrich et al., 2016, algorithm 1).
#pragma once

#include <memory>
#include <span>

#include "common/data/tokenizers/bpe_tokenizer.h"
#include "common/data/tokenizers/piece_counts.h"

namespace stagegpt {

// The first `count` merges: each joins the two neighbouring tokens that are neighbours most often, of several
// the pair with the smaller ids (left, then right). Fewer where no pair occurs twice. Ids count from the 256
// bytes on, in GPT-2's order. Throws Stopped when a signal has come.
//
// The same merges as Hugging Face's BpeTrainer with min_frequency 2 and the alphabet of all bytes. As there,
// a run such as "aaa" counts as two pairs though only one can be merged.
std::vector<Merge> train_merges(std::span<const PieceCount> pieces, std::size_t count);

// Byte-level BPE with `vocab_size` tokens at most: bytes, merges, end of text. Throws UserError, naming
// --vocab-size, where the bytes do not fit.
std::unique_ptr<BpeTokenizer> train_bpe(const PieceCounts& counts, std::int64_t vocab_size);

}  // namespace stagegpt
