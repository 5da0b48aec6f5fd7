#include "tools/page/document.h"

#include <algorithm>

#include "common/base/error.h"
#include "common/data/utf8.h"
#include "tools/page/base_style.h"

namespace stagegpt {

namespace {

// What the scripts of all pages begin with.
constexpr const char* kPrelude = R"js("use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const $ = id => document.getElementById(id);
function make(tag, css, text) {
  const element = document.createElement(tag);
  if (css) element.className = css;
  if (text !== undefined) element.textContent = text;
  return element;
}
)js";

struct Replacement {
  char character;
  const char* by;
};

std::string replaced(std::string_view text, std::span<const Replacement> replacements) {
  std::string out;
  for (const char c : text) {
    const auto found = std::ranges::find(replacements, c, &Replacement::character);
    found == replacements.end() ? out += c : out += found->by;
  }
  return out;
}

}  // namespace

std::string escaped(std::string_view text) {
  constexpr Replacement kMarkup[] = {
      {'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}, {'\'', "&#39;"}};
  return replaced(printable_text(text), kMarkup);
}

std::string paragraph(std::string_view text, std::string_view css) {
  return concat("<p class=\"", css, "\">", escaped(text), "</p>\n");
}

std::string fact(std::string_view name, std::string_view value, std::string_view beside) {
  return concat("<div><dt>", escaped(name), "</dt><dd>", escaped(value),
                beside.empty() ? "" : concat("<small>", escaped(beside), "</small>"), "</dd></div>\n");
}

std::string page_head(std::string_view title, std::string_view style, Scripts scripts) {
  return concat(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'",
      scripts == Scripts::own ? "; script-src 'unsafe-inline'" : "", "\">\n<title>", escaped(title),
      "</title>\n<style>", kBaseStyle, style, "</style>\n</head>\n");
}

std::string page_script(const Json& data, std::string_view script) {
  constexpr Replacement kMarkup[] = {{'<', "\\u003c"}, {'>', "\\u003e"}, {'&', "\\u0026"}};
  return concat("<script type=\"application/json\" id=\"data\">", replaced(json_text(data, -1), kMarkup),
                "</script>\n<script>\n", kPrelude, script, "</script>\n");
}

std::string base64(std::span<const std::uint8_t> bytes) {
  constexpr const char* kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    const std::size_t count = std::min<std::size_t>(3, bytes.size() - at);  // 8·count bits
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i < 3; ++i) bits = bits << 8 | (i < count ? bytes[at + i] : 0u);
    for (std::size_t i = 0; i < 4; ++i) text += i <= count ? kDigits[bits >> (18 - 6 * i) & 63] : '=';
  }
  return text;
}

}  // namespace stagegpt
