// Vocabularies as files spell them: names of tokens with their ids, and merges of names.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "common/data/tokenizers/bpe_tokenizer.h"

namespace stagegpt {

// The tokens of a JSON object {name: id, …} and of `special`, by id. Throws UserError unless ids count from 0
// without gap or repeat.
Vocabulary read_vocabulary(const nlohmann::json& ids_by_name, std::vector<SpecialToken> special);

using NamedMerges = std::vector<std::pair<std::string, std::string>>;

// "a b": the parts of a merge as a line.
std::pair<std::string, std::string> split_merge(std::string_view line);

// Byte-level BPE from names spelled in GPT-2's byte alphabet (those of special tokens are plain text).
std::unique_ptr<BpeTokenizer> bpe_from_names(Vocabulary names, const NamedMerges& merges);

}  // namespace stagegpt
