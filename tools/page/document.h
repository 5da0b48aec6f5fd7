// The texts of a page that needs no other file and no network.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "common/base/json_fwd.h"

namespace stagegpt {

// For text and attribute values: escapes markup, and replaces invalid UTF-8 by U+FFFD.
std::string escaped(std::string_view text);
// A paragraph of this text, of a class of the page's style.
std::string paragraph(std::string_view text, std::string_view css = "");
// A name and its value in a <dl>, and smaller text beside the value.
std::string fact(std::string_view name, std::string_view value, std::string_view beside = "");

// Whether a page has scripts of its own. Its content security policy refuses everything else.
enum class Scripts { none, own };

// From the doctype to the end of <head>. `style` follows the style sheet of all pages (base_style.h).
std::string page_head(std::string_view title, std::string_view style, Scripts scripts = Scripts::none);

// JSON, which no text in it can end, and the script that reads it: from `data`. The script also has $(id) and
// make(tag, css, text) for elements.
std::string page_script(const Json& data, std::string_view script);

// Base64 (RFC 4648), for bytes inside a page.
std::string base64(std::span<const std::uint8_t> bytes);

}  // namespace stagegpt
