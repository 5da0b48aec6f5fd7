// Hugging Face's tokenizer.json (the format of the `tokenizers` library).
#pragma once

#include <memory>
#include <string>

#include "common/data/tokenizers/tokenizer.h"

namespace stagegpt {

std::string tokenizer_json(const Tokenizer& tokenizer);
// tokenizer_config.json, which goes beside it: which special token plays which part, for `transformers`.
// `longest` is the model's context, in tokens.
std::string tokenizer_config_json(const Tokenizer& tokenizer, std::int64_t longest);

// Reads what tokenizer_json() writes, and GPT-2's kind of tokenizer from elsewhere: byte-level BPE with
// GPT-2's pieces, no normalisation. Throws UserError that names what is wrong or not supported.
std::unique_ptr<Tokenizer> parse_tokenizer_json(const nlohmann::json& json);

}  // namespace stagegpt
