// Decoding while tokens come in.
#pragma once

#include <string>
#include <string_view>

#include "common/data/tokenizers/tokenizer.h"

namespace stagegpt {

// Gives out text as soon as its characters are whole: a token may end inside one. What is given out is always
// UTF-8: bytes that are no character become U+FFFD, also those of a character that the text ends inside.
// Joined, it is utf8_replaced() of decode() of all ids, which is the text that Hugging Face's decode gives.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  // The text up to the last whole character.
  std::string push(std::int32_t id) { return push_bytes(tokenizer_.decode({&id, 1})); }
  // The same for bytes that are there already, of a prompt: a token may end the character they end inside.
  std::string push_bytes(std::string_view bytes);
  // The end of the text: U+FFFD where bytes of its last character are missing, else nothing.
  std::string finish();

 private:
  const Tokenizer& tokenizer_;
  std::string pending_;
};

}  // namespace stagegpt
