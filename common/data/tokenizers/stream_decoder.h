// Decodes a stream of tokens.
#pragma once

#include <string>
#include <string_view>

#include "common/data/tokenizers/tokenizer.h"

namespace stagegpt {

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
