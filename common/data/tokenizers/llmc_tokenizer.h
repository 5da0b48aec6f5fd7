// llm.c's tokenizer file: the bytes of each token. It has no merges and no kind; both are inferred.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "common/data/tokenizers/tokenizer.h"

namespace stagegpt {

// Whether a file begins as one.
bool is_llmc_tokenizer(std::span<const std::byte> file);

// Byte-level BPE where all bytes are tokens, the others then being in order of their merges, as GPT-2's are;
// else words, if there is [UNK]; else characters, if every token is one. Throws UserError otherwise.
std::unique_ptr<Tokenizer> parse_llmc_tokenizer(std::span<const std::byte> file);

// Version 2. Throws UserError where there is no end of text, or a token has more than 255 bytes.
std::string llmc_tokenizer(const Tokenizer& tokenizer);

}  // namespace stagegpt
