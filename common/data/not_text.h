// Recognises files that are no text, before a model learns their bytes.
#pragma once

#include <string>
#include <string_view>

namespace stagegpt {

// How many bytes at the beginning of a file not_text() should see.
inline constexpr std::size_t kSeenOfText = std::size_t{1} << 16;

// Of what kind a file is that begins so, such as "a gzip file", or that more than a hundredth of these bytes
// are no UTF-8. Empty for a text.
std::string not_text(std::string_view begin);

}  // namespace stagegpt
