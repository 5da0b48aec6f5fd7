// Decoding while tokens come in.
#pragma once

#include <string>
#include <utility>

#include "common/data/tokenizers/tokenizer.h"

namespace stagegpt {

// Gives out text as soon as its characters are whole: a token may end inside one.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  // The text up to the last whole character. Bytes that can become no character are passed on as they are.
  std::string push(std::int32_t id);
  // What was held back: the beginning of a character that has not ended. Joined, all that was given out is
  // decode() of all ids.
  std::string finish() { return std::exchange(pending_, {}); }

 private:
  const Tokenizer& tokenizer_;
  std::string pending_;
};

}  // namespace stagegpt
