// Character tokenizer: one token per character (Unicode code point), and the end of text.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <unordered_map>

#include "common/base/json_fwd.h"
#include "common/data/tokenizers/piece_counts.h"
#include "common/data/tokenizers/tokenizer.h"

namespace stagegpt {

class CharTokenizer final : public Tokenizer {
 public:
  // Every token that is not special must be one character. Throws UserError otherwise.
  explicit CharTokenizer(Vocabulary vocabulary);

  std::string_view kind() const override { return "char"; }
  bool needs_utf8() const override { return true; }
  Json hugging_face() const override;

 private:
  void encode_text(std::string_view text, std::vector<std::int32_t>& ids) const override;
  std::size_t cut_text(std::string_view text) const override;

  std::array<std::int32_t, 128> ascii_{};
  std::unordered_map<char32_t, std::int32_t> others_;
};

// Counts the characters of a text, which is UTF-8.
void count_characters(std::string_view text, PieceCounts& counts);

// A vocabulary of the counted characters in order of code point, then the end of text.
std::unique_ptr<CharTokenizer> make_char_tokenizer(const PieceCounts& counts);

}  // namespace stagegpt
