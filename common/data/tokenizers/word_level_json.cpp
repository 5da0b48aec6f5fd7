#include "common/data/tokenizers/word_level_json.h"

#include "common/base/json.h"

namespace stagegpt {

Json word_level_json(const Vocabulary& vocabulary, const std::string& pattern, const std::string& unknown) {
  Json vocab = Json::object();
  // An ordered_json object is a vector. Appending to it directly avoids the linear search of its own
  // insertion.
  auto& entries = vocab.get_ref<Json::object_t&>();
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id)
    entries.emplace_back(vocabulary.tokens[id], id);
  return {
      {"pre_tokenizer",
       {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}}},
      {"decoder", {{"type", "Fuse"}}},
      {"model", {{"type", "WordLevel"}, {"vocab", std::move(vocab)}, {"unk_token", unknown}}}};
}

}  // namespace stagegpt
