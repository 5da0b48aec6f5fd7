// The beginning of a page that needs no other file and no network.
#pragma once

#include <string>
#include <string_view>

namespace stagegpt {

// Whether a page has scripts of its own. Its content security policy refuses everything else.
enum class Scripts { none, own };

// From the doctype to the end of <head>. `style` follows the style sheet of all pages (base_style.h).
std::string page_head(std::string_view title, std::string_view style, Scripts scripts = Scripts::none);

// An element with the id "data", from which the page's script reads JSON. No text in it can end the element.
std::string script_data(std::string_view json);

}  // namespace stagegpt
