#include "common/data/tokenizers/tokenizer.h"

#include <algorithm>
#include <functional>

#include "common/data/file.h"
#include "common/data/tokenizers/llmc_tokenizer.h"
#include "common/data/tokenizers/tokenizer_json.h"
#include "common/error.h"

namespace stagegpt {
namespace {

constexpr std::size_t kNowhere = std::string_view::npos;

// Occurrences of special tokens in a text, from left to right; of those that begin at one place, the longest.
class SpecialTokenScan {
 public:
  SpecialTokenScan(std::string_view text, const std::vector<SpecialToken>& tokens) : text_(text) {
    for (const SpecialToken& token : tokens) next_.push_back({&token, text.find(token.text)});
  }

  // Sets `at` to the first occurrence at or behind `from`; null where there is none.
  const SpecialToken* next(std::size_t from, std::size_t& at) {
    for (Occurrence& token : next_) {
      if (token.at < from) token.at = text_.find(token.token->text, from);
    }
    const auto first = std::ranges::min_element(next_, [](const Occurrence& a, const Occurrence& b) {
      return a.at != b.at ? a.at < b.at : a.token->text.size() > b.token->text.size();
    });
    if (first == next_.end() || first->at == kNowhere) return nullptr;
    at = first->at;
    return first->token;
  }

 private:
  struct Occurrence {
    const SpecialToken* token;
    std::size_t at;
  };
  std::string_view text_;
  std::vector<Occurrence> next_;
};

}  // namespace

Tokenizer::Tokenizer(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {
  for (const SpecialToken& token : vocabulary_.special_tokens) {
    check(!token.text.empty() && token.id >= 0 && token.id < size(), "tokenizer: special token ", token.id);
  }
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, SpecialTokens special) const {
  std::vector<std::int32_t> ids;
  if (special == SpecialTokens::as_text) {
    encode_text(text, ids);
    return ids;
  }
  SpecialTokenScan scan(text, vocabulary_.special_tokens);
  std::size_t from = 0, at = 0;
  while (const SpecialToken* token = scan.next(from, at)) {
    encode_text(text.substr(from, at - from), ids);
    ids.push_back(token->id);
    from = at + token->text.size();
  }
  encode_text(text.substr(from), ids);
  return ids;
}

bool Tokenizer::is_special(std::int32_t id) const {
  return std::ranges::find(vocabulary_.special_tokens, id, &SpecialToken::id) !=
         vocabulary_.special_tokens.end();
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  for (const std::int32_t id : ids) {
    check(id >= 0 && id < size(), "decode: id ", id, ", the vocabulary has ", size());
    text += vocabulary_.tokens[static_cast<std::size_t>(id)];
  }
  return text;
}

std::size_t Tokenizer::safe_cut(std::string_view text, SpecialTokens special) const {
  if (special == SpecialTokens::as_text) return cut_text(text);
  std::size_t longest = 0;
  for (const SpecialToken& token : vocabulary_.special_tokens) longest = std::max(longest, token.text.size());
  if (text.size() < longest) return 0;
  // A name that begins up to here is whole, and none that is longer can come of it.
  const std::size_t last = text.size() - longest;
  SpecialTokenScan scan(text, vocabulary_.special_tokens);
  std::size_t behind = 0, at = 0;  // the names
  while (const SpecialToken* token = scan.next(behind, at)) {
    if (at > last) break;
    behind = at + token->text.size();
  }
  return behind >= last ? behind : behind + cut_text(text.substr(behind, last - behind));
}

void Tokenizer::save(const std::filesystem::path& path) const {
  write_file(path, path.extension() == ".bin" ? llmc_tokenizer(*this) : tokenizer_json(*this));
}

}  // namespace stagegpt
