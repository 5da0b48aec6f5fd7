// Tokenises a text with several threads. The tokens do not depend on the number of threads.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "common/comm/rank_group.h"
#include "common/data/text_source.h"
#include "common/data/tokenizers/tokenizer.h"

namespace stagegpt {

// The special tokens that are recognised in a text.
inline std::span<const SpecialToken> special_in(SpecialTokens special, const Tokenizer& tokenizer) {
  if (special == SpecialTokens::as_text) return {};
  return tokenizer.special_tokens();
}

struct TokenizeOptions {
  int threads = 1;
  SpecialTokens special = SpecialTokens::as_text;
  // Called as the work proceeds, with the bytes that are read and the total.
  std::function<void(std::int64_t done, std::int64_t total)> progress = [](std::int64_t, std::int64_t) {};
};

// Throws UserError, which names the file and the byte, unless the block is UTF-8.
void require_utf8(const TextSource& text, const TextBlock& block);

using TokenSink = std::function<void(std::span<const std::int32_t>)>;

// Passes the tokens of a range to `sink`, in order, with an end-of-text token between documents. Throws
// UserError, which names the file, for text that the vocabulary cannot encode.
void tokenize(const TextSource& text, TextRange range, const Tokenizer& tokenizer,
              const TokenizeOptions& options, const TokenSink& sink);

// Tokenizes on all ranks together: each rank reads the whole text, encodes every size-th block, and gets the
// tokens of the other blocks from the ranks that have encoded them. All ranks make the same call. An error of
// one rank is thrown on all; AgreedUserError, which names a rank, if that rank's text differs.
void tokenize_together(RankGroup& group, const TextSource& text, TextRange range, const Tokenizer& tokenizer,
                       const TokenizeOptions& options, const TokenSink& sink);

}  // namespace stagegpt
