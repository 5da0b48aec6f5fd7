// Text in HTML and SVG.
#pragma once

#include <string>
#include <string_view>

namespace stagegpt {

// For text and attribute values: escapes markup, and replaces invalid UTF-8 by U+FFFD.
std::string escaped(std::string_view text);
// A paragraph of this text, of a class of the page's style.
std::string paragraph(std::string_view text, std::string_view css = "");

}  // namespace stagegpt
