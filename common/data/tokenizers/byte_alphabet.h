// GPT-2's byte alphabet: a printable character for each byte. Its vocabulary files write tokens in it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace stagegpt {

// The bytes in GPT-2's order. First come the printable characters of Latin-1 ('!' to '~', U+00A1 to U+00AC,
// U+00AE to U+00FF), which represent themselves. Then come the other bytes, which are represented by U+0100,
// U+0101, and so on. The first 256 tokens of a vocabulary are the bytes in this order.
std::array<unsigned char, 256> bytes_in_gpt2_order();

// Bytes in the byte alphabet, as UTF-8: "a b" becomes "aĠb".
std::string to_byte_alphabet(std::string_view bytes);

// The inverse; nullopt if a character is not in the alphabet.
std::optional<std::string> from_byte_alphabet(std::string_view text);

}  // namespace stagegpt
