#include "common/data/tokenizers/llmc_tokenizer.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <unordered_set>

#include "common/base/error.h"
#include "common/data/tokenizers/bpe_tokenizer.h"
#include "common/data/tokenizers/char_tokenizer.h"
#include "common/data/tokenizers/word_tokenizer.h"
#include "common/data/utf8.h"

namespace stagegpt {
namespace {

using Header = std::array<std::int32_t, 256>;
constexpr std::int32_t kMagic = 20240328, kNewestVersion = 2;
constexpr std::int32_t kGpt2EndOfText = 50256;  // implied by version 1
constexpr std::size_t kLongestToken = 255;

Header read_header(std::span<const std::byte> file) {
  Header header{};
  if (file.size() < sizeof header) user_error("the file has ", file.size(), " bytes, fewer than its header");
  std::memcpy(header.data(), file.data(), sizeof header);
  if (header[1] != 1 && header[1] != kNewestVersion) user_error("version ", header[1], ", expected 1 or 2");
  if (header[2] < 1) user_error("the header specifies ", header[2], " tokens, expected at least 1");
  return header;
}

std::vector<std::string> read_tokens(std::span<const std::byte> rest, std::int32_t count) {
  std::vector<std::string> tokens;
  constexpr std::size_t kLeast = 2;  // bytes per token; the file may have fewer tokens than its header says
  tokens.reserve(std::min(static_cast<std::size_t>(count), rest.size() / kLeast));
  std::unordered_set<std::string_view> seen;  // views of the file
  for (std::int32_t id = 0; id < count; ++id) {
    const std::size_t length = rest.empty() ? 0 : static_cast<std::size_t>(rest[0]);
    if (rest.size() < 1 + length) user_error("the file ends at token ", id, " of ", count);
    if (length == 0) user_error("token ", id, " is empty");
    const std::string_view token(reinterpret_cast<const char*>(rest.data()) + 1, length);
    tokens.emplace_back(token);
    if (!seen.insert(token).second) user_error("token ", id, " occurs twice");
    rest = rest.subspan(1 + length);
  }
  if (!rest.empty()) user_error(rest.size(), " bytes follow the last token");
  return tokens;
}

// For each token in order: the earlier merges split its bytes into two tokens, and these are its merge.
std::vector<Merge> infer_merges(const Vocabulary& vocabulary) {
  BpeMerger merger;
  std::vector<Merge> merges;
  merges.reserve(vocabulary.tokens.size());
  std::vector<std::int32_t> parts;
  const auto each_token = [&](auto&& use) {
    for (std::int32_t id = 0; id < std::ssize(vocabulary.tokens); ++id) {
      if (!vocabulary.is_special(id)) use(id, vocabulary.tokens[static_cast<std::size_t>(id)]);
    }
  };
  each_token([&](std::int32_t id, const std::string& token) {
    if (token.size() == 1) merger.set_byte(static_cast<unsigned char>(token[0]), id);
  });
  each_token([&](std::int32_t id, const std::string& token) {
    if (token.size() == 1) return;
    parts.clear();
    merger.merge(token, parts);
    if (parts.size() != 2) user_error("token ", id, " is not a merge of two earlier tokens");
    merges.push_back({parts[0], parts[1], id});
    merger.add(merges.back());
  });
  return merges;
}

}  // namespace

bool is_llmc_tokenizer(std::span<const std::byte> file) {
  std::int32_t magic = 0;
  if (file.size() < sizeof magic) return false;
  std::memcpy(&magic, file.data(), sizeof magic);
  return magic == kMagic;
}

std::unique_ptr<Tokenizer> parse_llmc_tokenizer(std::span<const std::byte> file) {
  const Header header = read_header(file);
  Vocabulary vocabulary;
  vocabulary.tokens = read_tokens(file.subspan(sizeof header), header[2]);
  const std::int32_t end_of_text = header[1] == 1 ? kGpt2EndOfText : header[3];
  if (end_of_text < 0 || end_of_text >= header[2]) {
    user_error("the end-of-text token is ", end_of_text, ", outside the vocabulary of ", header[2]);
  }
  vocabulary.end_of_text = end_of_text;
  bool all_characters = true, has_unknown = false;
  std::array<bool, 256> bytes{};
  std::optional<std::int32_t> not_utf8;  // a token that cannot be a word
  for (std::int32_t id = 0; id < header[2]; ++id) {
    const std::string& token = vocabulary.tokens[static_cast<std::size_t>(id)];
    const bool is_utf8 = utf8_prefix(token) == token.size();
    if (!is_utf8) not_utf8 = id;
    if (token.size() == 1) bytes[static_cast<unsigned char>(token[0])] = true;
    if (id == end_of_text || token == kPadding || token == kUnknownWord) {
      if (!is_utf8) user_error("the special token ", id, " is not UTF-8");
      vocabulary.special_tokens.push_back({token, id});
      has_unknown |= token == kUnknownWord;
    } else {
      all_characters &= utf8_length(token, 0) == token.size();
    }
  }
  if (std::ranges::find(bytes, false) == bytes.end()) {
    std::vector<Merge> merges = infer_merges(vocabulary);
    return std::make_unique<BpeTokenizer>(std::move(vocabulary), std::move(merges));
  }
  if (has_unknown && not_utf8) user_error("token ", *not_utf8, ", a word, is not UTF-8");
  if (has_unknown) return std::make_unique<WordTokenizer>(std::move(vocabulary));
  if (all_characters) return std::make_unique<CharTokenizer>(std::move(vocabulary));
  user_error(
      "the vocabulary is none of the supported kinds: all bytes and merges (bpe), characters (char), or "
      "words with [UNK] (word)");
}

std::string llmc_tokenizer(const Tokenizer& tokenizer) {
  if (!tokenizer.end_of_text())
    user_error("llm.c's format needs an end-of-text token, which this vocabulary does not have");
  Header header{};
  header[0] = kMagic;
  header[1] = kNewestVersion;
  header[2] = static_cast<std::int32_t>(tokenizer.size());
  header[3] = *tokenizer.end_of_text();
  std::string file(reinterpret_cast<const char*>(header.data()), sizeof header);
  for (const std::string& token : tokenizer.vocabulary().tokens) {
    if (token.empty() || token.size() > kLongestToken) {
      user_error("a token has ", token.size(), " bytes, but llm.c's format allows 1 to ", kLongestToken);
    }
    file += static_cast<char>(token.size());
    file += token;
  }
  return file;
}

}  // namespace stagegpt
