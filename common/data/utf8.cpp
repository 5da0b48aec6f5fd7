#include "common/data/utf8.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

namespace stagegpt {
namespace {

constexpr std::size_t kLongest = 4;

// The length of a character by its first byte; 0 if no character begins with this byte.
std::size_t expected_length(unsigned char first) {
  if (first < 0x80) return 1;
  if (first < 0xC2 || first > 0xF4) return 0;
  return first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
}

// Whether `second` may follow `first`. After some first bytes only a part of the continuation bytes is valid,
// which excludes overlong forms, surrogates and values above U+10FFFF.
bool may_follow(unsigned char first, unsigned char second) {
  switch (first) {
    case 0xE0:
      return second >= 0xA0 && second <= 0xBF;
    case 0xED:
      return second >= 0x80 && second <= 0x9F;
    case 0xF0:
      return second >= 0x90 && second <= 0xBF;
    case 0xF4:
      return second >= 0x80 && second <= 0x8F;
    default:
      return second >= 0x80 && second <= 0xBF;
  }
}

// How many bytes at the beginning of `text` belong to one character, which may be incomplete; 0 if no
// character begins there.
std::size_t bytes_of_character(std::string_view text) {
  if (text.empty()) return 0;
  const auto first = static_cast<unsigned char>(text[0]);
  const std::size_t length = std::min(expected_length(first), text.size());
  for (std::size_t i = 1; i < length; ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (i == 1 ? !may_follow(first, byte) : (byte & 0xC0) != 0x80) return i;
  }
  return length;
}

}  // namespace

std::size_t utf8_length(std::string_view text, std::size_t at) {
  const std::string_view rest = text.substr(std::min(at, text.size()));
  const std::size_t bytes = bytes_of_character(rest);
  return bytes > 0 && bytes == expected_length(static_cast<unsigned char>(rest[0])) ? bytes : 0;
}

std::size_t utf8_broken_length(std::string_view text, std::size_t at) {
  return std::max<std::size_t>(1, bytes_of_character(text.substr(at)));
}

std::size_t utf8_prefix(std::string_view text) {
  constexpr std::uint64_t kHighBits = 0x8080808080808080;
  std::size_t at = 0;
  while (at < text.size()) {
    std::uint64_t eight = kHighBits;
    if (at + sizeof eight <= text.size()) std::memcpy(&eight, text.data() + at, sizeof eight);
    if ((eight & kHighBits) == 0) {  // eight ASCII characters at once
      at += sizeof eight;
      continue;
    }
    const std::size_t length = utf8_length(text, at);
    if (length == 0) break;
    at += length;
  }
  return at;
}

char32_t utf8_code_point(std::string_view character) {
  const auto first = static_cast<unsigned char>(character[0]);
  if (character.size() == 1) return first;
  char32_t code = first & (0x7Fu >> character.size());
  for (const char next : character.substr(1)) code = code << 6 | (static_cast<unsigned char>(next) & 0x3Fu);
  return code;
}

std::size_t utf8_complete(std::string_view text) {
  for (std::size_t back = 1; back < kLongest && back <= text.size(); ++back) {
    const std::string_view tail = text.substr(text.size() - back);
    if (bytes_of_character(tail) == back && expected_length(static_cast<unsigned char>(tail[0])) > back)
      return text.size() - back;
  }
  return text.size();
}

std::size_t utf8_boundary(std::string_view text, std::size_t at) {
  for (std::size_t back = 1; back < kLongest && back <= at; ++back) {
    const std::size_t length = utf8_length(text, at - back);
    if (length > back) return at - back;
    if (length != 0) break;
  }
  return at;
}

std::string utf8_replaced(std::string_view text) {
  std::string out;
  each_character(text, [&](std::string_view character) { out += character; });
  return out;
}

std::string printable_text(std::string_view text) {
  constexpr unsigned char kFirstPrintable = 0x20, kDelete = 0x7f;
  std::string out;
  each_character(text, [&](std::string_view character) {
    const auto byte = static_cast<unsigned char>(character[0]);
    const bool control = (byte < kFirstPrintable && byte != '\n' && byte != '\t') || byte == kDelete;
    out += control ? "?" : character;
  });
  return out;
}

}  // namespace stagegpt
