#include "tools/page/document.h"

#include "common/base/error.h"
#include "tools/page/base_style.h"
#include "tools/page/html.h"

namespace stagegpt {

std::string page_head(std::string_view title, std::string_view style, Scripts scripts) {
  return concat(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'",
      scripts == Scripts::own ? "; script-src 'unsafe-inline'" : "", "\">\n<title>", escaped(title),
      "</title>\n<style>", kBaseStyle, style, "</style>\n</head>\n");
}

std::string script_data(std::string_view json) {
  std::string out;
  for (const char c : json) {
    switch (c) {
      case '<':
        out += "\\u003c";
        break;
      case '>':
        out += "\\u003e";
        break;
      case '&':
        out += "\\u0026";
        break;
      default:
        out += c;
    }
  }
  return concat("<script type=\"application/json\" id=\"data\">", out, "</script>\n");
}

}  // namespace stagegpt
