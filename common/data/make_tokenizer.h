// The tokenizer that the user chose: loaded from files, or trained on the text.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "common/data/tokenize.h"

namespace stagegpt {

// The user's choice of a tokenizer: the flags of the same names.
struct TokenizerChoice {
  std::optional<std::string> kind;  // char, word, bpe or gpt2; default: that of `path`, or bpe
  std::optional<std::string> path;  // of an existing tokenizer
  std::optional<std::int64_t> vocab_size;
  std::string path_flag = "--tokenizer-path";  // the flag that messages about `path` name
};

// The default size of a BPE vocabulary: one token for each 600 bytes of text, within these bounds. The
// default vocabulary of words has every word, up to the upper bound.
inline constexpr std::int64_t kSmallestDefaultVocabSize = 512, kLargestDefaultVocabSize = 50257;
std::int64_t default_vocab_size(std::int64_t text_bytes);

// Loads the tokenizer if a path was given or the kind is gpt2; otherwise returns null. Throws UserError,
// which names the flag, if files are missing or invalid, or if the flags contradict each other.
std::unique_ptr<Tokenizer> load_chosen_tokenizer(const TokenizerChoice& choice);

// The chosen tokenizer: loaded, or trained on the text.
std::unique_ptr<Tokenizer> make_tokenizer(const TokenizerChoice& choice, const TextSource& text,
                                          const TokenizeOptions& options);

}  // namespace stagegpt
