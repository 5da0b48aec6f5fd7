// Text in HTML, and in SVG inside it.
#pragma once

#include <string>
#include <string_view>

namespace stagegpt::compare {

// As a text or an attribute's value: markup becomes text, bytes that are no UTF-8 become U+FFFD.
std::string escaped(std::string_view text);

}  // namespace stagegpt::compare
