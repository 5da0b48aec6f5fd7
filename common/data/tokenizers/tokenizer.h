// Tokenizers: encode text as token ids, and decode ids.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/json_fwd.h"
#include "common/data/tokenizers/special_tokens.h"

namespace stagegpt {

// The vocabulary of a tokenizer: the bytes of each id, and the special tokens.
struct Vocabulary {
  std::vector<std::string> tokens;  // by id
  std::vector<SpecialToken> special_tokens;
  std::optional<std::int32_t> end_of_text;

  bool is_special(std::int32_t id) const;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Throws UserError for text that the vocabulary cannot encode. Thread-safe.
  std::vector<std::int32_t> encode(std::string_view text,
                                   SpecialTokens special = SpecialTokens::as_text) const;
  // The concatenated bytes of all ids. Ids must be in [0, size()).
  std::string decode(std::span<const std::int32_t> ids) const;

  std::int64_t size() const { return std::ssize(vocabulary_.tokens); }
  const Vocabulary& vocabulary() const { return vocabulary_; }
  const std::vector<SpecialToken>& special_tokens() const { return vocabulary_.special_tokens; }
  bool is_special(std::int32_t id) const { return vocabulary_.is_special(id); }
  std::optional<std::int32_t> end_of_text() const { return vocabulary_.end_of_text; }
  // Texts end with this token, which is special.
  void set_end_of_text(std::int32_t id) { vocabulary_.end_of_text = id; }
  // The token for text that is not in the vocabulary, if this kind of tokenizer has one.
  virtual std::optional<std::int32_t> unknown() const { return std::nullopt; }

  // The name of the kind in --tokenizer.
  virtual std::string_view kind() const = 0;
  // Whether encode() refuses bytes that are not UTF-8.
  virtual bool needs_utf8() const = 0;

  // Where a text that continues can be cut into two parts that are encoded separately. If the result is n,
  // then encode(text + more) is the concatenation of encode(text[0, n)) and encode(text[n, end) + more). 0 if
  // there is no such n; a text that is long enough has one.
  std::size_t safe_cut(std::string_view text, SpecialTokens special = SpecialTokens::as_text) const;

  // The parts of Hugging Face's tokenizer.json that depend on the kind: pre_tokenizer, decoder, model.
  virtual Json hugging_face() const = 0;
  // Writes tokenizer.json, or llm.c's format if the name ends in ".bin".
  void save(const std::filesystem::path& path) const;

 protected:
  explicit Tokenizer(Vocabulary vocabulary);

 private:
  // `text` is UTF-8 if needs_utf8().
  virtual void encode_text(std::string_view text, std::vector<std::int32_t>& ids) const = 0;
  virtual std::size_t cut_text(std::string_view text) const = 0;

  Vocabulary vocabulary_;
};

// Returns text as soon as its characters are complete, because a token may end inside a character. The text
// is always UTF-8: invalid bytes become U+FFFD, also those of an incomplete character at the end. The
// concatenated text equals utf8_replaced() of decode() of all ids, which is what Hugging Face's decode
// returns.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  // Adds a token. Returns the new text up to the last complete character.
  std::string push(std::int32_t id) { return push_bytes(tokenizer_.decode({&id, 1})); }
  // Adds bytes, such as those of a prompt. They may end inside a character, which the next token
  // completes.
  std::string push_bytes(std::string_view bytes);
  // The rest of the text: U+FFFD if its last character is incomplete, otherwise nothing.
  std::string finish();

 private:
  const Tokenizer& tokenizer_;
  std::string pending_;
};

}  // namespace stagegpt
