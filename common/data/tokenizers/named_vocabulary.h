// Vocabularies as they are in files: the names of tokens with their ids, and merges of names.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/data/tokenizers/bpe_tokenizer.h"

namespace stagegpt {

// The special token with one of the names that end a text where nothing else is said; none if there is none.
std::optional<std::int32_t> usual_end_of_text(const std::vector<SpecialToken>& special);

// The tokens of a JSON object {name: id, …} and of `special`, by id. Throws UserError unless the ids are 0,
// 1, 2, … without gaps or duplicates.
Vocabulary read_vocabulary(const nlohmann::json& ids_by_name, std::vector<SpecialToken> special);

using NamedMerges = std::vector<std::pair<std::string, std::string>>;

// The two tokens of a merge from its line "a b".
std::pair<std::string, std::string> split_merge(std::string_view line);

// Byte-level BPE from names in GPT-2's byte alphabet (names of special tokens are plain text).
std::unique_ptr<BpeTokenizer> bpe_from_names(Vocabulary names, const NamedMerges& merges);

}  // namespace stagegpt
