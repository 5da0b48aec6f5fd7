#include "common/data/tokenizers/tokenizer.h"

#include <algorithm>
#include <utility>

#include "common/base/error.h"
#include "common/data/tokenizers/llmc_tokenizer.h"
#include "common/data/tokenizers/tokenizer_json.h"
#include "common/data/utf8.h"
#include "common/io/file.h"

namespace stagegpt {

bool Vocabulary::is_special(std::int32_t id) const {
  return std::ranges::find(special_tokens, id, &SpecialToken::id) != special_tokens.end();
}

Tokenizer::Tokenizer(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {
  for (const SpecialToken& token : vocabulary_.special_tokens) {
    check(!token.text.empty() && token.id >= 0 && token.id < size(), "tokenizer: special token ", token.id);
  }
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, SpecialTokens special) const {
  const std::size_t valid = needs_utf8() ? utf8_prefix(text) : text.size();
  if (valid < text.size()) user_error("the text is not UTF-8: no character begins at byte ", valid);
  std::vector<std::int32_t> ids;
  if (special == SpecialTokens::as_text) {
    encode_text(text, ids);
    return ids;
  }
  split_at_special_tokens(
      text, vocabulary_.special_tokens, [&](std::string_view part) { encode_text(part, ids); },
      [&](const SpecialToken& token) { ids.push_back(token.id); });
  return ids;
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
  // A special token that begins up to here is complete in this text, and cannot be the beginning of a longer
  // one.
  const std::size_t last = text.size() - longest;
  SpecialTokenScan scan(text, vocabulary_.special_tokens);
  std::size_t behind = 0, at = 0;  // end of the last special token; begin of the next
  while (const SpecialToken* token = scan.next(behind, at)) {
    if (at > last) break;
    behind = at + token->text.size();
  }
  // The text can be cut after a special token. There may be a later position in the ordinary text after it.
  return behind >= last ? behind : behind + cut_text(text.substr(behind, last - behind));
}

void Tokenizer::save(const std::filesystem::path& path) const {
  write_file(path, path.extension() == ".bin" ? llmc_tokenizer(*this) : tokenizer_json(*this));
}

std::string StreamDecoder::push_bytes(std::string_view bytes) {
  pending_ += bytes;
  const std::size_t whole = utf8_complete(pending_);
  const std::string text = utf8_replaced(std::string_view(pending_).substr(0, whole));
  pending_.erase(0, whole);
  return text;
}

std::string StreamDecoder::finish() { return utf8_replaced(std::exchange(pending_, {})); }

}  // namespace stagegpt
