// A text file as training and validation tokens.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "common/data/tokenizer.h"

namespace stagegpt {

struct Corpus {
  std::unique_ptr<Tokenizer> tokenizer;
  std::vector<std::int32_t> train;
  std::vector<std::int32_t> validation;  // the end of the text
};

// Tokenises a text file by character. The last val_fraction of its tokens are for validation. Throws
// UserError when either part is shorter than one window of block_size + 1 tokens.
Corpus load_corpus(const std::filesystem::path& path, double val_fraction, std::int64_t block_size);

}  // namespace stagegpt
