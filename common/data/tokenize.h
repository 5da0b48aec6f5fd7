// From a text to tokens, on several threads. The tokens do not depend on their number.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "common/data/text_source.h"
#include "common/data/tokenizers/tokenizer.h"

namespace stagegpt {

struct TokenizeOptions {
  int threads = 1;
  SpecialTokens special = SpecialTokens::as_text;
  // Called as work goes on, with the bytes done of those to do.
  std::function<void(std::int64_t done, std::int64_t total)> progress = [](std::int64_t, std::int64_t) {};
};

// Throws UserError, naming file and byte, unless the block is UTF-8.
void require_utf8(const TextSource& text, const TextBlock& block);

// Passes the tokens of a range to `sink`, in order, the end of text between documents. Throws UserError for
// text that the vocabulary cannot express, naming the file.
void tokenize(const TextSource& text, TextRange range, const Tokenizer& tokenizer,
              const TokenizeOptions& options, const std::function<void(std::span<const std::int32_t>)>& sink);

}  // namespace stagegpt
