// Hugging Face's form of a tokenizer that looks whole pieces up.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "common/base/json.h"
#include "common/data/tokenizers/tokenizer.h"

namespace stagegpt {

// A regular expression for any one character.
inline constexpr const char* kOneCharacter = R"([\s\S])";

// pre_tokenizer, decoder and model: pieces are the matches of `pattern`, `unknown` stands for what is not in
// the vocabulary, and decoding joins without spaces.
Json word_level_json(const Vocabulary& vocabulary, const std::string& pattern, const std::string& unknown);

}  // namespace stagegpt
