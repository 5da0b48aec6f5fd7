#include "tools/page/html.h"

#include "common/base/error.h"
#include "common/data/utf8.h"

namespace stagegpt {

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : printable_text(text)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string paragraph(std::string_view text, std::string_view css) {
  return concat("<p class=\"", css, "\">", escaped(text), "</p>\n");
}

}  // namespace stagegpt
