// Uses a tokenizer that a fuzz target has read.
#pragma once

#include "common/base/error.h"
#include "common/base/json.h"
#include "common/data/tokenizers/tokenizer.h"
#include "common/data/tokenizers/tokenizer_json.h"

namespace stagegpt::test {

// Decoding must give the encoded texts, and saving and loading must give the same tokenizer.
inline void use_tokenizer(const Tokenizer& tokenizer) {
  for (const char* text : {"It's 12 o'clock,\t<|endoftext|>[UNK]\n  Zwölf 中文 😀 aab", "\xff\xc3 ab", "a"}) {
    for (const auto special : {SpecialTokens::as_text, SpecialTokens::recognised}) {
      try {
        const auto ids = tokenizer.encode(text, special);
        const std::string back = tokenizer.decode(ids);
        check(tokenizer.unknown() || back == text, "another text is decoded than was encoded");
      } catch (const UserError&) {  // a vocabulary may lack some characters
        check(tokenizer.needs_utf8(), "a text of bytes is refused");
      }
    }
  }
  const auto again = parse_tokenizer_json(parse_json(tokenizer_json(tokenizer)));
  check(again->kind() == tokenizer.kind(), "another kind of tokenizer is read than was written");
  check(again->vocabulary().tokens == tokenizer.vocabulary().tokens,
        "other tokens are read than were written");
}

}  // namespace stagegpt::test
