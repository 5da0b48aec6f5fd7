// GPT-2's printable stand-ins for bytes, in which its vocabulary files spell tokens.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace stagegpt {

// The bytes in GPT-2's order, which is that of their stand-ins: first those that are printable characters of
// Latin-1 ('!' to '~', U+00A1 to U+00AC, U+00AE to U+00FF) and stand for themselves, then the others, whose
// stand-ins are U+0100, U+0101, and so on. Bytes are the first 256 tokens of a vocabulary in this order.
std::array<unsigned char, 256> bytes_in_gpt2_order();

// Bytes spelled in stand-ins, as UTF-8: "a b" is "aĠb".
std::string to_byte_alphabet(std::string_view bytes);

// And back; nothing where a character is no stand-in.
std::optional<std::string> from_byte_alphabet(std::string_view text);

}  // namespace stagegpt
