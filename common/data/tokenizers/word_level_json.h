// Hugging Face's WordLevel model: a tokenizer that looks up whole pieces in its vocabulary.
#pragma once

#include <string>

#include "common/base/json_fwd.h"
#include "common/data/tokenizers/tokenizer.h"

namespace stagegpt {

// A regular expression that matches any single character.
inline constexpr const char* kOneCharacter = R"([\s\S])";

// pre_tokenizer, decoder and model. The pieces are the matches of `pattern`. `unknown` is the token for
// pieces that are not in the vocabulary. Decoding concatenates tokens without spaces.
Json word_level_json(const Vocabulary& vocabulary, const std::string& pattern, const std::string& unknown);

}  // namespace stagegpt
