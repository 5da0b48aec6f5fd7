// Hugging Face's tokenizer.json (the format of the `tokenizers` library).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/base/json_fwd.h"
#include "common/data/tokenizers/tokenizer.h"

namespace stagegpt {

std::string tokenizer_json(const Tokenizer& tokenizer);
// tokenizer_config.json, which `transformers` reads from the same directory: the roles of the special tokens.
// `longest` is the model's context length in tokens.
std::string tokenizer_config_json(const Tokenizer& tokenizer, std::int64_t longest);

// The special tokens of a list as in `added_tokens`. Throws UserError for a token that is not special.
std::vector<SpecialToken> read_special_tokens(const nlohmann::json& added_tokens);

// Reads files of tokenizer_json(), and files of other programs for tokenizers like GPT-2's: byte-level BPE
// with GPT-2's pre-tokenisation and no normalisation. Throws UserError that names what is invalid or not
// supported.
std::unique_ptr<Tokenizer> parse_tokenizer_json(const nlohmann::json& json);

// A regular expression that matches any single character.
inline constexpr const char* kOneCharacter = R"([\s\S])";

// {"name": id, …} in the order of ids.
Json vocabulary_json(const std::vector<std::string>& names);

// Hugging Face's WordLevel model, which looks up whole pieces in its vocabulary: pre_tokenizer, decoder and
// model. The pieces are the matches of `pattern`. `unknown` is the token for
// pieces that are not in the vocabulary. Decoding concatenates tokens without spaces.
Json word_level_json(const Vocabulary& vocabulary, const std::string& pattern, const std::string& unknown);

}  // namespace stagegpt
