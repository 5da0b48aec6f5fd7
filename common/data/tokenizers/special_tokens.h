// Special tokens, and where their names occur in a text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace stagegpt {

// A token that stands for no text of its own, such as the end of a document.
struct SpecialToken {
  std::string text;  // its name
  std::int32_t id = 0;
};

// Whether the name of a special token inside a text is text like any other, or the token.
enum class SpecialTokens { as_text, recognised };

// Occurrences of special tokens in a text, from left to right; of those that begin at one place, the longest.
class SpecialTokenScan {
 public:
  // Both are borrowed.
  SpecialTokenScan(std::string_view text, const std::vector<SpecialToken>& tokens);

  // Sets `at` to the first occurrence at or behind `from`; null where there is none. `from` must not
  // decrease.
  const SpecialToken* next(std::size_t from, std::size_t& at);

 private:
  struct Occurrence {
    const SpecialToken* token;
    std::size_t at;
  };
  std::string_view text_;
  std::vector<Occurrence> next_;
};

// Names of what ends a text: of words, and of all others.
inline constexpr const char* kEndOfText = "<|endoftext|>";
inline constexpr const char* kEndOfWords = "[EOS]";
// Names of what fills a batch, and of words that a vocabulary lacks.
inline constexpr const char *kPadding = "[PAD]", *kUnknownWord = "[UNK]";

// Calls on_text(part) for the parts of a text between special tokens, and on_token(token) for these, in
// order.
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
