// Loads a tokenizer from any of the supported file formats.
#pragma once

#include <filesystem>
#include <memory>
#include <string_view>

#include "common/data/tokenizers/tokenizer.h"

namespace stagegpt {

// `path` is a tokenizer.json, llm.c's tokenizer file, one of GPT-2's two files (encoder.json and vocab.bpe,
// or vocab.json and merges.txt, both in the same directory), or a directory that contains one of these.
// Throws UserError, which names `flag` and the file.
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& path, std::string_view flag);

}  // namespace stagegpt
