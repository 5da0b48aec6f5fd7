#include "common/data/char_tokenizer.h"

#include <set>

#include "common/data/utf8.h"
#include "common/error.h"

namespace stagegpt {
namespace {

// Calls use(character) for each character of `text`.
template <class Use>
void for_each_character(std::string_view text, const Use& use) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_length(text, at);
    if (length == 0) user_error("the text is not UTF-8: byte ", at, " begins no character");
    use(text.substr(at, length));
    at += length;
  }
}

}  // namespace

CharTokenizer::CharTokenizer(std::string_view corpus) {
  std::set<std::string_view> seen;  // byte order of UTF-8 is the order of code points
  for_each_character(corpus, [&](std::string_view character) { seen.insert(character); });
  for (std::string_view character : seen) {
    ids_.emplace(character, static_cast<std::int32_t>(characters_.size()));
    characters_.emplace_back(character);
  }
}

std::vector<std::int32_t> CharTokenizer::encode(std::string_view text) const {
  std::vector<std::int32_t> ids;
  ids.reserve(text.size());
  for_each_character(text, [&](std::string_view character) {
    const auto id = ids_.find(std::string(character));
    if (id == ids_.end()) user_error("the character '", character, "' is not in the vocabulary");
    ids.push_back(id->second);
  });
  return ids;
}

std::string CharTokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  for (std::int32_t id : ids) text += characters_.at(static_cast<std::size_t>(id));
  return text;
}

}  // namespace stagegpt
