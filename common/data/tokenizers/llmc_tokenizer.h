// llm.c's tokenizer file: the bytes of each token. It contains neither the merges nor the kind of tokenizer;
// both are inferred.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "common/data/tokenizers/tokenizer.h"

namespace stagegpt {

// Whether the file begins with the format's magic number.
bool is_llmc_tokenizer(std::span<const std::byte> file);

// Byte-level BPE if all bytes are tokens; the other tokens must be in the order of their merges, as in GPT-2.
// Otherwise words if there is [UNK], or characters if every token is one character. Throws UserError for any
// other vocabulary.
std::unique_ptr<Tokenizer> parse_llmc_tokenizer(std::span<const std::byte> file);

// Returns a file of version 2. Throws UserError if there is no end of text, or a token has more than 255
// bytes.
std::string llmc_tokenizer(const Tokenizer& tokenizer);

}  // namespace stagegpt
