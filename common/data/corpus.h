// What --data names, as training and validation tokens.
#pragma once

#include <memory>
#include <string>

#include "common/comm/rank_group.h"
#include "common/data/make_tokenizer.h"
#include "common/data/token_sequence.h"
#include "common/data/tokenizers/tokenizer.h"

namespace stagegpt {

struct CorpusConfig {
  // A text file; a pattern that matches several, each a document; token shards, by name or pattern; or a
  // directory that prepare_data made.
  std::string data;
  TokenizerChoice tokenizer;
  // Of the text, or of the tokens of shards that come without validation shards. 0: no validation at all.
  double val_fraction = 0.1;
  SpecialTokens special = SpecialTokens::as_text;
};

struct Corpus {
  std::unique_ptr<Tokenizer> tokenizer;
  TokenSequence train;
  // The end of the text, or the shards named "val" where the others are named "train". Empty where none was
  // wanted.
  TokenSequence validation;
  TokenIdentity train_identity, validation_identity;  // of each
};

// The tokenizer that a corpus asks for: loaded, that of shards, or made from the text on `threads` threads.
// Throws UserError.
std::unique_ptr<Tokenizer> corpus_tokenizer(const CorpusConfig& config, int threads);

// The corpus in tokens of that tokenizer, on every rank. Text is tokenised by each rank, on `threads` threads
// of its own; of shards each rank verifies its share (see verify_shards()), and compares them with their
// manifest where there is one. Throws AgreedUserError, also when a part that is wanted is shorter than one
// window of block_size + 1 tokens.
Corpus load_corpus(RankGroup& group, const CorpusConfig& config, std::unique_ptr<Tokenizer> tokenizer,
                   std::int64_t block_size, int threads);
// The same in one process, with the tokenizer that the corpus asks for.
Corpus load_corpus(const CorpusConfig& config, std::int64_t block_size, int threads);

}  // namespace stagegpt
