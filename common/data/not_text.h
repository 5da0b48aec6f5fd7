// Recognises files that are no text, before a model learns their bytes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace stagegpt {

// The number of bytes that kind_of_no_text() should see.
inline constexpr std::size_t kSeenOfText = std::size_t{1} << 16;

// What a file is that begins with these bytes, and what to do with it ("a zip file; unpack it"), or why they
// are no text: more than a hundredth is not UTF-8, or zero. Empty for a text.
std::string kind_of_no_text(std::string_view begin);

}  // namespace stagegpt
