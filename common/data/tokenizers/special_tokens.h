// Special tokens, and how to find their names in a text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace stagegpt {

// A token that does not represent text, such as the end of a document.
struct SpecialToken {
  std::string text;  // its name
  std::int32_t id = 0;
};

// Whether the name of a special token in a text is encoded as ordinary text or as the token.
enum class SpecialTokens { as_text, recognised };

// Finds special tokens in a text, from left to right. If several begin at the same position, the longest is
// found.
class SpecialTokenScan {
 public:
  // Both are borrowed.
  SpecialTokenScan(std::string_view text, const std::vector<SpecialToken>& tokens);

  // The first special token that begins at or after `from`, and its position `at`; null if there is none.
  // `from` must not decrease from call to call.
  const SpecialToken* next(std::size_t from, std::size_t& at);

 private:
  struct Occurrence {
    const SpecialToken* token;
    std::size_t at;
  };
  std::string_view text_;
  std::vector<Occurrence> next_;
};

// The name of the end-of-text token: of the word tokenizer, and of all others.
inline constexpr const char* kEndOfText = "<|endoftext|>";
inline constexpr const char* kEndOfWords = "[EOS]";
// The names of the padding token and of the token for words that are not in the vocabulary.
inline constexpr const char *kPadding = "[PAD]", *kUnknownWord = "[UNK]";

// Calls on_text(part) for each part of a text between special tokens, and on_token(token) for each special
// token, in order.
template <class OnText, class OnToken>
void split_at_special_tokens(std::string_view text, const std::vector<SpecialToken>& tokens,
                             const OnText& on_text, const OnToken& on_token) {
  SpecialTokenScan scan(text, tokens);
  std::size_t from = 0, at = 0;
  while (const SpecialToken* token = scan.next(from, at)) {
    on_text(text.substr(from, at - from));
    on_token(*token);
    from = at + token->text.size();
  }
  on_text(text.substr(from));
}

}  // namespace stagegpt
