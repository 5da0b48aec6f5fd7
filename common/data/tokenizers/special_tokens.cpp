#include "common/data/tokenizers/special_tokens.h"

#include <algorithm>

namespace stagegpt {

SpecialTokenScan::SpecialTokenScan(std::string_view text, const std::vector<SpecialToken>& tokens)
    : text_(text) {
  for (const SpecialToken& token : tokens) next_.push_back({&token, text.find(token.text)});
}

const SpecialToken* SpecialTokenScan::next(std::size_t from, std::size_t& at) {
  for (Occurrence& token : next_) {
    if (token.at < from) token.at = text_.find(token.token->text, from);
  }
  const auto first = std::ranges::min_element(next_, [](const Occurrence& a, const Occurrence& b) {
    return a.at != b.at ? a.at < b.at : a.token->text.size() > b.token->text.size();
  });
  if (first == next_.end() || first->at == std::string_view::npos) return nullptr;
  at = first->at;
  return first->token;
}

}  // namespace stagegpt
