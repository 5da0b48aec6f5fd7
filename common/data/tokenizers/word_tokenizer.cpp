#include "common/data/tokenizers/word_tokenizer.h"

#include <algorithm>

#include "common/base/error.h"
#include "common/base/json.h"
#include "common/data/tokenizers/splitter.h"
#include "common/data/tokenizers/tokenizer_json.h"

namespace stagegpt {

WordTokenizer::WordTokenizer(Vocabulary vocabulary_in) : Tokenizer(std::move(vocabulary_in)) {
  const auto unknown = std::ranges::find(special_tokens(), kUnknownWord, &SpecialToken::text);
  if (unknown == special_tokens().end())
    user_error("a vocabulary of words needs the special token ", kUnknownWord);
  unknown_ = unknown->id;
  for (std::int32_t id = 0; id < size(); ++id) {
    if (!is_special(id)) ids_.emplace(vocabulary().tokens[static_cast<std::size_t>(id)], id);
  }
}

void WordTokenizer::encode_text(std::string_view text, std::vector<std::int32_t>& ids) const {
  Splitter::Cursor cursor(Splitter::words(), text);
  for (std::string_view piece; cursor.next(piece);) {
    const auto known = ids_.find(piece);
    ids.push_back(known == ids_.end() ? unknown_ : known->second);
  }
}

std::size_t WordTokenizer::cut_text(std::string_view text) const { return Splitter::words().safe_cut(text); }

Json WordTokenizer::hugging_face() const {
  return word_level_json(vocabulary(), Splitter::words().pattern(), kUnknownWord);
}

std::unique_ptr<WordTokenizer> make_word_tokenizer(const PieceCounts& counts, std::int64_t vocab_size) {
  Vocabulary vocabulary;
  for (const char* name : {kPadding, kEndOfWords, kUnknownWord}) {
    vocabulary.special_tokens.push_back({name, static_cast<std::int32_t>(vocabulary.tokens.size())});
    vocabulary.tokens.emplace_back(name);
  }
  vocabulary.end_of_text = 1;
  if (vocab_size <= std::ssize(vocabulary.tokens)) {
    user_error("--vocab-size: ", vocab_size, ", expected at least ", vocabulary.tokens.size() + 1,
               ": [PAD], [EOS], [UNK] and a word");
  }
  std::vector<PieceCount> pieces = counts.sorted();
  std::ranges::stable_sort(pieces, std::ranges::greater(), &PieceCount::count);
  const std::size_t room = static_cast<std::size_t>(vocab_size) - vocabulary.tokens.size();
  for (const auto& [piece, count] : std::span(pieces).first(std::min(room, pieces.size()))) {
    vocabulary.tokens.emplace_back(piece);
  }
  return std::make_unique<WordTokenizer>(std::move(vocabulary));
}

}  // namespace stagegpt
