#include "common/data/tokenizers/char_tokenizer.h"

#include "common/base/error.h"
#include "common/base/json.h"
#include "common/data/tokenizers/tokenizer_json.h"
#include "common/data/utf8.h"

namespace stagegpt {
namespace {

constexpr std::int32_t kUnknown = -1;

}  // namespace

CharTokenizer::CharTokenizer(Vocabulary vocabulary_in) : Tokenizer(std::move(vocabulary_in)) {
  ascii_.fill(kUnknown);
  for (std::int32_t id = 0; id < size(); ++id) {
    if (is_special(id)) continue;
    const std::string& token = vocabulary().tokens[static_cast<std::size_t>(id)];
    if (token.empty() || utf8_length(token, 0) != token.size())
      user_error("token ", id, " is not one character");
    const char32_t c = utf8_code_point(token);
    if (c < ascii_.size()) {
      ascii_[c] = id;
    } else {
      others_.emplace(c, id);
    }
  }
}

void CharTokenizer::encode_text(std::string_view text, std::vector<std::int32_t>& ids) const {
  ids.reserve(ids.size() + text.size());
  each_character(text, [&](std::string_view character) {
    const char32_t c = utf8_code_point(character);
    std::int32_t id = kUnknown;
    if (c < ascii_.size()) {
      id = ascii_[c];
    } else if (const auto other = others_.find(c); other != others_.end()) {
      id = other->second;
    }
    if (id == kUnknown) user_error("the character '", character, "' is not in the vocabulary");
    ids.push_back(id);
  });
}

std::size_t CharTokenizer::cut_text(std::string_view text) const { return utf8_complete(text); }

Json CharTokenizer::hugging_face() const {
  // Hugging Face's format needs a token for characters that are not in the vocabulary. It is the end of text,
  // as in the GPT-2 tokenizer of transformers. encode() refuses such characters.
  const auto end = end_of_text();
  return word_level_json(vocabulary(), kOneCharacter,
                         end ? vocabulary().tokens[static_cast<std::size_t>(*end)] : kUnknownWord);
}

void count_characters(std::string_view text, PieceCounts& counts) {
  std::array<std::int64_t, 128> ascii{};
  each_character(text, [&](std::string_view character) {
    if (character.size() == 1) {
      ++ascii[static_cast<unsigned char>(character[0])];
    } else {
      counts.add(character);
    }
  });
  for (std::size_t c = 0; c < ascii.size(); ++c) {
    const char byte = static_cast<char>(c);
    if (ascii[c] > 0) counts.add({&byte, 1}, ascii[c]);
  }
}

std::unique_ptr<CharTokenizer> make_char_tokenizer(const PieceCounts& counts) {
  Vocabulary vocabulary;
  // Sorting UTF-8 by bytes sorts by code point.
  for (const auto& [piece, count] : counts.sorted()) vocabulary.tokens.emplace_back(piece);
  vocabulary.end_of_text = static_cast<std::int32_t>(vocabulary.tokens.size());
  vocabulary.special_tokens = {{kEndOfText, *vocabulary.end_of_text}};
  vocabulary.tokens.emplace_back(kEndOfText);
  return std::make_unique<CharTokenizer>(std::move(vocabulary));
}

}  // namespace stagegpt
