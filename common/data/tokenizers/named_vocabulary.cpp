#include "common/data/tokenizers/named_vocabulary.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "common/base/error.h"
#include "common/data/tokenizers/byte_alphabet.h"

namespace stagegpt {

std::optional<std::int32_t> usual_end_of_text(const std::vector<SpecialToken>& special) {
  for (const char* name : {kEndOfText, kEndOfWords, "</s>"}) {
    const auto token = std::ranges::find(special, name, &SpecialToken::text);
    if (token != special.end()) return token->id;
  }
  return std::nullopt;
}

Vocabulary read_vocabulary(const nlohmann::json& ids_by_name, std::vector<SpecialToken> special) {
  if (!ids_by_name.is_object()) user_error("the vocabulary is not a JSON object");
  std::size_t size = ids_by_name.size();
  for (const SpecialToken& token : special) size += !ids_by_name.contains(token.text);
  Vocabulary vocabulary;
  vocabulary.tokens.resize(size);
  std::vector<bool> seen(size);
  const auto put = [&](const std::string& name, std::int64_t id) {
    if (id < 0 || id >= std::ssize(vocabulary.tokens)) {
      user_error("token '", name, "' has the id ", id, ", expected 0 to ", size - 1, " for ", size,
                 " tokens");
    }
    const auto i = static_cast<std::size_t>(id);
    if (seen[i]) user_error("tokens '", vocabulary.tokens[i], "' and '", name, "' both have the id ", id);
    seen[i] = true;
    vocabulary.tokens[i] = name;
  };
  for (const auto& [name, id] : ids_by_name.items()) {
    if (!id.is_number_integer()) user_error("the id of token '", name, "' is not a whole number");
    put(name, id.get<std::int64_t>());
  }
  for (const SpecialToken& token : special) {
    const auto known = ids_by_name.find(token.text);
    if (known == ids_by_name.end()) {
      put(token.text, token.id);
    } else if (known->get<std::int64_t>() != token.id) {
      user_error("the special token '", token.text, "' has the ids ", known->get<std::int64_t>(), " and ",
                 token.id);
    }
  }
  vocabulary.special_tokens = std::move(special);
  vocabulary.end_of_text = usual_end_of_text(vocabulary.special_tokens);
  return vocabulary;
}

std::pair<std::string, std::string> split_merge(std::string_view line) {
  const std::size_t space = line.find(' ');
  if (space == line.npos || space == 0 || space + 1 == line.size() ||
      line.find(' ', space + 1) != line.npos) {
    user_error("expected a merge (two tokens separated by a space), not '", line, "'");
  }
  return {std::string(line.substr(0, space)), std::string(line.substr(space + 1))};
}

std::unique_ptr<BpeTokenizer> bpe_from_names(Vocabulary names, const NamedMerges& merges) {
  std::unordered_map<std::string, std::int32_t> ids;
  Vocabulary vocabulary = std::move(names);
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (vocabulary.is_special(static_cast<std::int32_t>(id))) continue;
    std::string& token = vocabulary.tokens[id];
    ids.emplace(token, static_cast<std::int32_t>(id));
    std::optional<std::string> bytes = from_byte_alphabet(token);
    if (!bytes || bytes->empty()) user_error("token '", token, "' is not written in GPT-2's byte alphabet");
    token = std::move(*bytes);
  }
  const auto id_of = [&](const std::string& name, std::size_t number) {
    const auto id = ids.find(name);
    if (id == ids.end()) user_error("merge ", number, ": '", name, "' is not in the vocabulary");
    return id->second;
  };
  std::vector<Merge> numbered;
  for (const auto& [left, right] : merges) {
    const std::size_t number = numbered.size() + 1;
    numbered.push_back({id_of(left, number), id_of(right, number), id_of(left + right, number)});
  }
  return std::make_unique<BpeTokenizer>(std::move(vocabulary), std::move(numbered));
}

}  // namespace stagegpt
