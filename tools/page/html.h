// Escapes text for HTML and SVG.
#pragma once

#include <string>
#include <string_view>

namespace stagegpt {

// For text and attribute values: escapes markup, and replaces invalid UTF-8 by U+FFFD.
std::string escaped(std::string_view text);

}  // namespace stagegpt
