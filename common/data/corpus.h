// The corpus: the training and validation tokens of --data.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/comm/rank_group.h"
#include "common/data/make_tokenizer.h"
#include "common/data/mixture.h"
#include "common/data/token_sequence.h"
#include "common/data/tokenizers/tokenizer.h"

namespace stagegpt {

struct CorpusConfig {
  // A text file; a pattern that matches several text files, each of which is a document; token shards, by
  // name or pattern; a directory made by prepare_data; or a mixture of these (mixture.h).
  std::string data;
  TokenizerChoice tokenizer;
  // The fraction of the text, or of the tokens of shards without validation shards. 0: no validation. 1: no
  // training; the validation part is all or, of a directory, its validation shards.
  double val_fraction = 0.1;
  SpecialTokens special = SpecialTokens::as_text;
  bool any_bytes = false;  // whether files may be no text

  bool trains() const { return val_fraction < 1; }
};

struct Corpus {
  std::unique_ptr<Tokenizer> tokenizer;
  // The training tokens; of a mixture those of its texts, one after the other.
  TokenSequence train;
  std::vector<MixturePart> mixture;  // of `train`; empty if it is not mixed
  // The end of the text, or the shards named "val" where the training shards are named "train"; of a mixture,
  // those of its texts, one after the other. Empty if val_fraction is 0.
  TokenSequence validation;
  TokenIdentity train_identity, validation_identity;  // of the two; the first one also of the shares
};

// Loads the corpus as tokens of `tokenizer`, on every rank. The ranks divide the work, each with `threads`
// threads: each encodes a share of a text (see tokenize_together()), or verifies a share of the token shards
// (see verify_shards()) and compares all of them with their manifest if there is one. Throws AgreedUserError,
// also if a requested part is shorter than one window of block_size + 1 tokens.
Corpus load_corpus(RankGroup& group, const CorpusConfig& config, std::unique_ptr<Tokenizer> tokenizer,
                   std::int64_t block_size, int threads);

// Rank 0 loads the tokenizer, takes that of the token shards, or trains one on the text, and gives it to the
// others; then follows load_corpus(). What fails on one rank, fails on all.
Corpus load_shared_corpus(RankGroup& group, const CorpusConfig& config, std::int64_t block_size, int threads);

}  // namespace stagegpt
