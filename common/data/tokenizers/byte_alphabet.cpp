#include "common/data/tokenizers/byte_alphabet.h"

#include "common/data/utf8.h"

namespace stagegpt {
namespace {

constexpr char32_t kFirstSubstitute = 0x100;

bool is_printable(unsigned byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

// The code point that represents each byte.
std::array<char32_t, 256> substitutes() {
  std::array<char32_t, 256> code_points{};
  char32_t next = kFirstSubstitute;
  for (unsigned byte = 0; byte < 256; ++byte) code_points[byte] = is_printable(byte) ? byte : next++;
  return code_points;
}

}  // namespace

std::array<unsigned char, 256> bytes_in_gpt2_order() {
  std::array<unsigned char, 256> order{};
  std::size_t n = 0;
  for (const bool printable : {true, false}) {
    for (unsigned byte = 0; byte < 256; ++byte) {
      if (is_printable(byte) == printable) order[n++] = static_cast<unsigned char>(byte);
    }
  }
  return order;
}

std::string to_byte_alphabet(std::string_view bytes) {
  static const std::array<char32_t, 256> code_points = substitutes();
  std::string text;
  for (const char byte : bytes) {
    const char32_t c = code_points[static_cast<unsigned char>(byte)];
    if (c < 0x80) {
      text += static_cast<char>(c);
    } else {  // below U+0800: two bytes
      text += static_cast<char>(0xC0 | c >> 6);
      text += static_cast<char>(0x80 | (c & 0x3F));
    }
  }
  return text;
}

std::optional<std::string> from_byte_alphabet(std::string_view text) {
  constexpr std::size_t kCodePoints = 0x180;
  static const std::array<int, kCodePoints> bytes = [] {
    std::array<int, kCodePoints> table{};
    table.fill(-1);
    const auto code_points = substitutes();
    for (int byte = 0; byte < 256; ++byte) table[code_points[static_cast<std::size_t>(byte)]] = byte;
    return table;
  }();
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_length(text, at);
    const char32_t c = length == 0 ? kCodePoints : utf8_code_point(text.substr(at, length));
    if (c >= kCodePoints || bytes[c] < 0) return std::nullopt;
    out += static_cast<char>(bytes[c]);
    at += length;
  }
  return out;
}

}  // namespace stagegpt
