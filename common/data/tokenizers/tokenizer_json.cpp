#include "common/data/tokenizers/tokenizer_json.h"

#include <algorithm>

#include "common/base/json.h"
#include "common/data/tokenizers/char_tokenizer.h"
#include "common/data/tokenizers/named_vocabulary.h"
#include "common/data/tokenizers/splitter.h"
#include "common/data/tokenizers/word_tokenizer.h"

namespace stagegpt {
namespace {

// A field of an object; null if it is missing.
const nlohmann::json& field(const nlohmann::json& object, const char* name) {
  static const nlohmann::json null;
  if (!object.is_object()) user_error("expected a JSON object, not a value of type ", object.type_name());
  const auto found = object.find(name);
  return found == object.end() ? null : *found;
}

// Throws UserError if an option has a value that would change the ids.
void require(const nlohmann::json& object, const char* name, const std::vector<nlohmann::json>& harmless) {
  const nlohmann::json& value = field(object, name);
  if (value.is_null() || std::ranges::find(harmless, value) != harmless.end()) return;
  user_error("'", name, "': ", value.dump().substr(0, 60), " is not supported");
}

std::string type_of(const nlohmann::json& object) {
  return object.is_object() ? object.value("type", "") : "";
}

void require_byte_level(const nlohmann::json& json) {
  const nlohmann::json& pre_tokenizer = field(json, "pre_tokenizer");
  if (type_of(pre_tokenizer) != "ByteLevel") {
    user_error("the pre_tokenizer is ",
               pre_tokenizer.is_null() ? "missing" : "'" + type_of(pre_tokenizer) + "'",
               ", expected GPT-2's, 'ByteLevel'");
  }
  // If add_prefix_space is missing, Hugging Face's default is true. GPT-2 has false.
  if (pre_tokenizer.value("add_prefix_space", true)) user_error("'add_prefix_space': true is not supported");
  require(pre_tokenizer, "use_regex", {true});
  if (type_of(field(json, "decoder")) != "ByteLevel") user_error("the decoder is not 'ByteLevel'");
  const nlohmann::json& post = field(json, "post_processor");
  const bool adds_nothing = type_of(post) == "TemplateProcessing" && field(post, "special_tokens").empty();
  if (!post.is_null() && type_of(post) != "ByteLevel" && !adds_nothing) {
    user_error("the post_processor '", type_of(post), "' is not supported");
  }
}

std::unique_ptr<Tokenizer> read_bpe(const nlohmann::json& json, std::vector<SpecialToken> special) {
  const nlohmann::json& model = json.at("model");
  require_byte_level(json);
  require(model, "dropout", {0.0});
  for (const char* option : {"continuing_subword_prefix", "end_of_word_suffix"}) require(model, option, {""});
  for (const char* option : {"byte_fallback", "ignore_merges"}) require(model, option, {false});
  NamedMerges merges;
  for (const nlohmann::json& merge : model.at("merges")) {
    merges.push_back(merge.is_string() ? split_merge(merge.get_ref<const std::string&>())
                                       : merge.get<std::pair<std::string, std::string>>());
  }
  return bpe_from_names(read_vocabulary(model.at("vocab"), std::move(special)), merges);
}

std::unique_ptr<Tokenizer> read_word_level(const nlohmann::json& json, std::vector<SpecialToken> special) {
  Vocabulary vocabulary = read_vocabulary(json.at("model").at("vocab"), std::move(special));
  const nlohmann::json& pre_tokenizer = field(json, "pre_tokenizer");
  require(pre_tokenizer, "behavior", {"Isolated"});
  require(pre_tokenizer, "invert", {false});
  const nlohmann::json pattern =
      type_of(pre_tokenizer) == "Split" ? pre_tokenizer.at("pattern").at("Regex") : nlohmann::json();
  if (pattern == kOneCharacter) return std::make_unique<CharTokenizer>(std::move(vocabulary));
  if (pattern == Splitter::words().pattern()) return std::make_unique<WordTokenizer>(std::move(vocabulary));
  user_error(
      "the pre_tokenizer of this WordLevel model is not supported, expected that of --tokenizer char or "
      "word");
}

std::unique_ptr<Tokenizer> read_model(const nlohmann::json& json, std::vector<SpecialToken> special) {
  const nlohmann::json& model = json["model"];
  // Older files have no "type" in a BPE model.
  const std::string type = model.value("type", model.contains("merges") ? "BPE" : "");
  if (type == "BPE") return read_bpe(json, std::move(special));
  if (type == "WordLevel") return read_word_level(json, std::move(special));
  user_error("the model '", type, "' is not supported, expected 'BPE' or 'WordLevel'");
}

}  // namespace

std::vector<SpecialToken> read_special_tokens(const nlohmann::json& added_tokens) {
  constexpr std::size_t kMost = 1024;  // the time to search a text grows with their number
  if (added_tokens.size() > kMost)
    user_error("there are ", added_tokens.size(), " added tokens, expected at most ", kMost);
  std::vector<SpecialToken> special;
  for (const nlohmann::json& token : added_tokens) {
    const nlohmann::json& id = token.at("id");
    if (!id.is_number_integer() || id < 0 || id > INT32_MAX)
      user_error("an added token's id is ", id.dump(), ", expected 0 to ", INT32_MAX);
    special.push_back({token.at("content").get<std::string>(), id.get<std::int32_t>()});
    const auto same = std::ranges::find(special, special.back().text, &SpecialToken::text);
    if (same != special.end() - 1) user_error("the added token '", same->text, "' occurs twice");
    if (special.back().text.empty()) user_error("an added token is empty");
    if (!token.value("special", false)) {
      user_error("the added token '", special.back().text, "' is not special, which is not supported");
    }
    for (const char* option : {"lstrip", "rstrip", "single_word"}) require(token, option, {false});
  }
  return special;
}

std::string tokenizer_json(const Tokenizer& tokenizer) {
  Json added = Json::array();
  const std::optional<std::int32_t> end = tokenizer.end_of_text();
  for (const SpecialToken& token : tokenizer.special_tokens()) {
    added.push_back({{"id", token.id},
                     {"content", token.text},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
    if (token.id == end && end != usual_end_of_text(tokenizer.special_tokens()))
      added.back()["end_of_text"] = true;
  }
  Json parts = tokenizer.hugging_face();
  const Json json = {{"version", "1.0"},
                     {"truncation", nullptr},
                     {"padding", nullptr},
                     {"added_tokens", std::move(added)},
                     {"normalizer", nullptr},
                     {"pre_tokenizer", std::move(parts.at("pre_tokenizer"))},
                     {"post_processor", nullptr},
                     {"decoder", std::move(parts.at("decoder"))},
                     {"model", std::move(parts.at("model"))}};
  return json.dump(2) + '\n';
}

std::string tokenizer_config_json(const Tokenizer& tokenizer, std::int64_t longest) {
  Json json = {{"tokenizer_class", "PreTrainedTokenizerFast"},
               {"model_max_length", longest},
               {"clean_up_tokenization_spaces", false}};
  const auto name = [&](const char* part, std::optional<std::int32_t> id) {
    if (id) json[part] = tokenizer.vocabulary().tokens[static_cast<std::size_t>(*id)];
  };
  name("bos_token", tokenizer.end_of_text());
  name("eos_token", tokenizer.end_of_text());
  name("unk_token", tokenizer.unknown());
  const auto pad = std::ranges::find(tokenizer.special_tokens(), kPadding, &SpecialToken::text);
  if (pad != tokenizer.special_tokens().end()) json["pad_token"] = pad->text;
  return json.dump(2) + '\n';
}

std::unique_ptr<Tokenizer> parse_tokenizer_json(const nlohmann::json& json) {
  return read_json([&] {
    if (!json.contains("model") || !json["model"].is_object()) user_error("there is no 'model'");
    require(json, "normalizer", {});
    const nlohmann::json& added = field(json, "added_tokens");
    std::unique_ptr<Tokenizer> tokenizer = read_model(json, read_special_tokens(added));
    for (const nlohmann::json& token : added) {  // a field of ours
      if (token.value("end_of_text", false)) tokenizer->set_end_of_text(token["id"].get<std::int32_t>());
    }
    return tokenizer;
  });
}

Json vocabulary_json(const std::vector<std::string>& names) {
  Json ids = Json::object();
  // An ordered_json object is a vector. Appending to it directly avoids the linear search of its own
  // insertion.
  auto& entries = ids.get_ref<Json::object_t&>();
  for (std::size_t id = 0; id < names.size(); ++id) entries.emplace_back(names[id], id);
  return ids;
}

Json word_level_json(const Vocabulary& vocabulary, const std::string& pattern, const std::string& unknown) {
  return {
      {"pre_tokenizer",
       {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}}},
      {"decoder", {{"type", "Fuse"}}},
      {"model",
       {{"type", "WordLevel"}, {"vocab", vocabulary_json(vocabulary.tokens)}, {"unk_token", unknown}}}};
}

}  // namespace stagegpt
