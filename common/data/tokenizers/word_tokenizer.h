// Word tokenizer: one token per word, punctuation mark or white-space character.
#pragma once

#include <memory>
#include <unordered_map>

#include "common/base/json_fwd.h"
#include "common/data/tokenizers/piece_counts.h"
#include "common/data/tokenizers/tokenizer.h"

namespace stagegpt {

class WordTokenizer final : public Tokenizer {
 public:
  // Throws UserError unless there is a special token [UNK], which encodes words that are not in the
  // vocabulary.
  explicit WordTokenizer(Vocabulary vocabulary);

  std::string_view kind() const override { return "word"; }
  bool needs_utf8() const override { return true; }
  std::optional<std::int32_t> unknown() const override { return unknown_; }
  Json hugging_face() const override;

 private:
  void encode_text(std::string_view text, std::vector<std::int32_t>& ids) const override;
  std::size_t cut_text(std::string_view text) const override;

  std::unordered_map<std::string_view, std::int32_t> ids_;  // the keys are views of the vocabulary
  std::int32_t unknown_ = 0;
};

// A vocabulary of at most `vocab_size` tokens: [PAD], [EOS], [UNK], then the counted pieces, most frequent
// first, ties in order of their bytes. Throws UserError, which names --vocab-size, if it is below 4.
std::unique_ptr<WordTokenizer> make_word_tokenizer(const PieceCounts& counts, std::int64_t vocab_size);

}  // namespace stagegpt
