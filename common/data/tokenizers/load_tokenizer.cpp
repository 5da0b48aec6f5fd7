#include "common/data/tokenizers/load_tokenizer.h"

#include <algorithm>

#include "common/base/json.h"
#include "common/data/tokenizers/llmc_tokenizer.h"
#include "common/data/tokenizers/named_vocabulary.h"
#include "common/data/tokenizers/tokenizer_json.h"
#include "common/io/file.h"

namespace stagegpt {
namespace {

namespace fs = std::filesystem;

struct FilePair {
  const char *vocabulary, *merges;
};
constexpr FilePair kGpt2Files[] = {{"encoder.json", "vocab.bpe"}, {"vocab.json", "merges.txt"}};

// Prefixes the errors of read() with the flag and the file.
template <class Read>
auto naming_both(std::string_view flag, const fs::path& path, const Read& read) {
  return naming(flag, [&] { return naming(path, read); });
}

// The merges in a merges file. A first line that states the version is skipped.
NamedMerges read_merges(std::string_view text) {
  NamedMerges merges;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || (number == 1 && line.starts_with("#version"))) continue;
    try {
      merges.push_back(split_merge(line));
    } catch (const UserError& error) {
      user_error("line ", number, ": ", error.what());
    }
  }
  return merges;
}

// The tokens of added_tokens.json beside GPT-2's files, which `transformers` writes there; none if there is
// no such file.
std::vector<SpecialToken> read_added_tokens(const fs::path& directory, std::string_view flag) {
  const fs::path path = directory / "added_tokens.json";
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return {};
  const MappedFile file(path, flag);
  return naming_both(flag, path, [&] {
    const nlohmann::json ids = parse_json(file.text());
    if (!ids.is_object()) user_error("expected an object, got the JSON type ", ids.type_name());
    nlohmann::json tokens = nlohmann::json::array();
    for (const auto& [name, id] : ids.items())
      tokens.push_back({{"content", name}, {"id", id}, {"special", true}});
    return read_special_tokens(tokens);
  });
}

// GPT-2's files do not say which tokens are special. The token named <|endoftext|> is, and added tokens are.
std::unique_ptr<Tokenizer> load_gpt2_files(const fs::path& vocabulary_path, const fs::path& merges_path,
                                           std::string_view flag) {
  for (const fs::path& path : {vocabulary_path, merges_path}) {
    std::error_code ignored;
    if (!fs::exists(path, ignored)) {
      user_error(flag, ": ", path, " does not exist; scripts/download_gpt2.sh fetches GPT-2's vocabulary");
    }
  }
  const MappedFile vocabulary_file(vocabulary_path, flag), merges_file(merges_path, flag);
  std::vector<SpecialToken> special = read_added_tokens(vocabulary_path.parent_path(), flag);
  Vocabulary names = naming_both(flag, vocabulary_path, [&] {
    const nlohmann::json ids = parse_json(vocabulary_file.text());
    const auto end = ids.is_object() ? ids.find(kEndOfText) : ids.end();
    const bool added = std::ranges::find(special, kEndOfText, &SpecialToken::text) != special.end();
    if (!added && end != ids.end() && end->is_number_integer())
      special.push_back({kEndOfText, end->get<std::int32_t>()});
    return read_vocabulary(ids, std::move(special));
  });
  return naming_both(flag, merges_path,
                     [&] { return bpe_from_names(std::move(names), read_merges(merges_file.text())); });
}

// A field of a JSON file in a directory; null if either is missing.
nlohmann::json field_of(const fs::path& directory, const char* file_name, const char* name,
                        std::string_view flag) {
  const fs::path path = directory / file_name;
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return {};
  const MappedFile file(path, flag);
  const nlohmann::json json = naming_both(flag, path, [&] { return parse_json(file.text()); });
  return json.is_object() && json.contains(name) ? json[name] : nlohmann::json();
}

// Takes the end of a text from what `transformers` reads beside a tokenizer: `eos_token` of
// tokenizer_config.json or, without one, the first `eos_token_id` of config.json. Without either the token
// with a usual name is the end.
void read_end_of_text(const fs::path& directory, std::string_view flag, Tokenizer& tokenizer) {
  nlohmann::json token = field_of(directory, "tokenizer_config.json", "eos_token", flag);
  if (token.is_object()) token = token.value("content", nlohmann::json());
  nlohmann::json id = token.is_null() ? field_of(directory, "config.json", "eos_token_id", flag) : nullptr;
  if (id.is_array() && !id.empty()) id = id[0];
  for (const SpecialToken& special : tokenizer.special_tokens()) {
    if (token == special.text || id == special.id) tokenizer.set_end_of_text(special.id);
  }
}

// The tokenizer file in a directory.
fs::path file_in(const fs::path& directory, std::string_view flag) {
  std::error_code ignored;
  for (const char* name :
       {"tokenizer.json", kGpt2Files[0].vocabulary, kGpt2Files[1].vocabulary, "tokenizer.bin"}) {
    if (fs::exists(directory / name, ignored)) return directory / name;
  }
  user_error(flag, ": ", directory,
             " holds no tokenizer.json, encoder.json with vocab.bpe, vocab.json with "
             "merges.txt, or tokenizer.bin; scripts/download_gpt2.sh fetches GPT-2's");
}

}  // namespace

std::unique_ptr<Tokenizer> load_tokenizer(const fs::path& path, std::string_view flag) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    auto tokenizer = load_tokenizer(file_in(path, flag), flag);
    read_end_of_text(path, flag, *tokenizer);
    return tokenizer;
  }
  if (!fs::exists(path, ignored)) {
    user_error(flag, ": ", path, " does not exist; scripts/download_gpt2.sh fetches GPT-2's vocabulary");
  }
  for (const auto& [vocabulary, merges] : kGpt2Files) {
    if (path.filename() == vocabulary || path.filename() == merges) {
      return load_gpt2_files(path.parent_path() / vocabulary, path.parent_path() / merges, flag);
    }
  }
  const MappedFile file(path, flag);
  return naming_both(flag, path, [&] {
    if (is_llmc_tokenizer(file.bytes())) return parse_llmc_tokenizer(file.bytes());
    try {
      return parse_tokenizer_json(parse_json(file.text()));
    } catch (const UserError& error) {
      user_error("expected tokenizer.json, GPT-2's two files or llm.c's file: ", error.what());
    }
  });
}

}  // namespace stagegpt
