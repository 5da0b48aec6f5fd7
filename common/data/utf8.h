// UTF-8 (RFC 3629).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace stagegpt {

// The length in bytes of the character at text[at]. 0 if there is no valid character: a stray or missing
// continuation byte, an overlong form, a surrogate, a value above U+10FFFF.
std::size_t utf8_length(std::string_view text, std::size_t at);

// The length of the longest prefix of `text` that consists of valid characters.
std::size_t utf8_prefix(std::string_view text);

// The code point of a valid character.
char32_t utf8_code_point(std::string_view character);

// The length of `text` without an incomplete character at its end.
std::size_t utf8_complete(std::string_view text);

// If there is no valid character at text[at]: how many bytes are replaced by one U+FFFD. It is the longest
// sequence that is the beginning of a valid character, or else one byte (the Unicode Standard, section 3.9,
// "U+FFFD Substitution of Maximal Subparts").
std::size_t utf8_broken_length(std::string_view text, std::size_t at);

// Calls take() with each character in order, and with U+FFFD for invalid bytes.
template <class Take>
void each_character(std::string_view text, const Take& take) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_length(text, at);
    take(length > 0 ? text.substr(at, length) : std::string_view("\uFFFD"));
    at += length > 0 ? length : utf8_broken_length(text, at);
  }
}

// `text` with invalid bytes replaced by U+FFFD, as Python's bytes.decode("utf-8", "replace") and the
// tokenizers of Hugging Face and OpenAI do.
std::string utf8_replaced(std::string_view text);

// A text that is safe to print: invalid bytes become U+FFFD; control characters other than line breaks and
// tabs become question marks.
std::string printable_text(std::string_view text);

// The last boundary between characters at or before `at`. Between invalid bytes: `at` itself.
std::size_t utf8_boundary(std::string_view text, std::size_t at);

}  // namespace stagegpt
