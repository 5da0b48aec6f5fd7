// Tokenizers made from a string, for tests.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/data/tokenizers/bpe_trainer.h"
#include "common/data/tokenizers/char_tokenizer.h"
#include "common/data/tokenizers/splitter.h"
#include "common/data/tokenizers/word_tokenizer.h"

namespace stagegpt::test {

inline std::vector<std::string> pieces_of(const Splitter& splitter, std::string_view text) {
  std::vector<std::string> pieces;
  Splitter::Cursor cursor(splitter, text);
  for (std::string_view piece; cursor.next(piece);) pieces.emplace_back(piece);
  return pieces;
}

inline PieceCounts count_pieces(const Splitter& splitter, std::string_view text) {
  PieceCounts counts;
  for (const std::string& piece : pieces_of(splitter, text)) counts.add(piece);
  return counts;
}

inline std::unique_ptr<CharTokenizer> char_tokenizer(std::string_view text) {
  PieceCounts counts;
  count_characters(text, counts);
  return make_char_tokenizer(counts);
}

inline std::unique_ptr<WordTokenizer> word_tokenizer(std::string_view text,
                                                     std::int64_t vocab_size = 1 << 20) {
  return make_word_tokenizer(count_pieces(Splitter::words(), text), vocab_size);
}

inline std::unique_ptr<BpeTokenizer> bpe_tokenizer(std::string_view text, std::int64_t vocab_size = 400) {
  return train_bpe(count_pieces(Splitter::gpt2(), text), vocab_size);
}

// A text of several scripts with a control character.
inline constexpr const char* kText =
    "It's the theatre, there; the thé — 中文 the there.\n\nThen 2026  they went.\t\"So\" \\ \x01";

// Byte-level BPE of 280 tokens: 23 merges.
inline std::unique_ptr<BpeTokenizer> small_bpe() {
  return bpe_tokenizer(std::string(kText) + kText + kText, 280);
}

}  // namespace stagegpt::test
