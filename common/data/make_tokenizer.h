// The tokenizer that a person asked for: loaded from files, or made from the text.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "common/data/tokenize.h"

namespace stagegpt {

// How a person asks for a tokenizer; see the flags of the same names.
struct TokenizerChoice {
  std::optional<std::string> kind;  // char, word, bpe, gpt2; bpe unless a path says otherwise
  std::optional<std::string> path;  // of one that exists
  std::optional<std::int64_t> vocab_size;
};

// Where none is asked for, the size of a vocabulary of bpe: a token for each 600 bytes of text, within these
// bounds. That of words has every word, within the same bound.
inline constexpr std::int64_t kSmallestDefaultVocabSize = 512, kLargestDefaultVocabSize = 50257;
std::int64_t default_vocab_size(std::int64_t text_bytes);

// The one to load when a choice needs no text: a path was given, or the kind is gpt2. Null otherwise. Throws
// UserError, naming the flag, where files are missing or broken, or the flags disagree.
std::unique_ptr<Tokenizer> load_chosen_tokenizer(const TokenizerChoice& choice);

// The one that was chosen: loaded, or made from the text.
std::unique_ptr<Tokenizer> make_tokenizer(const TokenizerChoice& choice, const TextSource& text,
                                          const TokenizeOptions& options);

}  // namespace stagegpt
