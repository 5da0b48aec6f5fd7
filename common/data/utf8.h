// UTF-8 (RFC 3629).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace stagegpt {

// Length in bytes of the character that begins at text[at], or 0 where none does: a stray or missing
// continuation byte, an overlong form, a surrogate, a value above U+10FFFF.
std::size_t utf8_length(std::string_view text, std::size_t at);

// Length of the longest prefix of `text` that is whole characters.
std::size_t utf8_prefix(std::string_view text);

// Code point of a whole character.
char32_t utf8_code_point(std::string_view character);

// Length of `text` without a character at its end of which bytes are still missing.
std::size_t utf8_complete(std::string_view text);

// Where no character begins at text[at]: how many bytes one U+FFFD stands for. That is the longest sequence
// that a character could begin with, or else one byte (the Unicode Standard, section 3.9, "U+FFFD
// Substitution of Maximal Subparts").
std::size_t utf8_broken_length(std::string_view text, std::size_t at);

// Calls take() with each character in turn, and with U+FFFD for what is none.
template <class Take>
void each_character(std::string_view text, const Take& take) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_length(text, at);
    take(length > 0 ? text.substr(at, length) : std::string_view("\uFFFD"));
    at += length > 0 ? length : utf8_broken_length(text, at);
  }
}

// `text` with U+FFFD for what is no character: the same as Python's bytes.decode("utf-8", "replace"), which
// Hugging Face's and OpenAI's tokenizers decode alike.
std::string utf8_replaced(std::string_view text);

// A text for people: what is no character becomes U+FFFD, a control character but for line breaks and tabs a
// question mark.
std::string printable_text(std::string_view text);

// The last boundary between characters at or before `at`. Between bytes that are no UTF-8: `at` itself.
std::size_t utf8_boundary(std::string_view text, std::size_t at);

}  // namespace stagegpt
