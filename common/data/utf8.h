// UTF-8 (RFC 3629).
#pragma once

#include <cstddef>
#include <string_view>

namespace stagegpt {

// Length in bytes of the character that begins at text[at], or 0 where none does: a stray or missing
// continuation byte, an overlong form, a surrogate, a value above U+10FFFF.
std::size_t utf8_length(std::string_view text, std::size_t at);

}  // namespace stagegpt
