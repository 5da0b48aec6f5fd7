#include "common/data/utf8.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

namespace stagegpt {
namespace {

constexpr std::size_t kLongest = 4;

// Length that a first byte announces; 0 for a byte that begins no character.
std::size_t announced_length(unsigned char first) {
  if (first < 0x80) return 1;
  if (first < 0xC2 || first > 0xF4) return 0;
  return first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
}

}  // namespace

std::size_t utf8_length(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0u;
  };
  const unsigned first = byte(0);
  if (first < 0x80) return at < text.size() ? 1 : 0;
  const std::size_t length = announced_length(static_cast<unsigned char>(first));
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  const unsigned second = byte(1);
  const bool overlong = (first == 0xE0 && second < 0xA0) || (first == 0xF0 && second < 0x90);
  const bool surrogate = first == 0xED && second > 0x9F;
  const bool too_large = first == 0xF4 && second > 0x8F;
  return overlong || surrogate || too_large ? 0 : length;
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
    const std::size_t length = announced_length(static_cast<unsigned char>(tail[0]));
    if (length <= back) continue;
    // The second byte decides whether the rest can come: try the smallest and the largest that may follow.
    for (const char filler : {'\x80', '\xBF'}) {
      std::string whole(tail);
      whole.resize(length, filler);
      if (utf8_length(whole, 0) == length) return text.size() - back;
    }
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
