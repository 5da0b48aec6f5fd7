#include "tools/compare/table.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "common/base/error.h"
#include "common/data/utf8.h"
#include "tools/page/document.h"

namespace stagegpt::compare {
namespace {

// Width in characters, not bytes.
std::size_t width_of(const std::string& text) {
  std::size_t width = 0;
  each_character(text, [&](std::string_view) { ++width; });
  return width;
}

// The table with a space for what begins a new line in a cell, the message of a failure for one.
Table in_single_lines(Table table) {
  for (auto& row : table.rows) {
    for (Cell& cell : row) std::ranges::replace(cell.text, '\n', ' ');
  }
  return table;
}

std::string padded(const std::string& text, std::size_t width, bool right) {
  const std::string space(width - std::min(width, width_of(text)), ' ');
  return right ? concat(space, text) : concat(text, space);
}

const char* class_of(Cell::Mark mark) {
  constexpr const char* kNames[] = {"", " good", " bad"};
  return kNames[static_cast<int>(mark)];
}

std::string printed(const char* format, int decimals, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, decimals, value);
  return text;
}

}  // namespace

std::string terminal_table(const Table& original) {
  const Table table = in_single_lines(original);
  std::vector<std::size_t> widths;
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    widths.push_back(width_of(table.columns[i].name));
    for (const auto& row : table.rows) widths[i] = std::max(widths[i], width_of(row[i].text));
  }
  std::string out;
  const auto add_line = [&](const auto& text_of) {
    std::string line;
    for (std::size_t i = 0; i < table.columns.size(); ++i) {
      line += concat(i > 0 ? "  " : "", padded(text_of(i), widths[i], table.columns[i].is_number));
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line;
    out += '\n';
  };
  add_line([&](std::size_t i) { return table.columns[i].name; });
  for (const auto& row : table.rows) {
    add_line([&](std::size_t i) { return row[i].text; });
  }
  return out;
}

std::string html_table(const Table& table, const std::string& caption) {
  std::string out =
      concat("<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"", escaped(caption),
             "\">\n<table aria-label=\"", escaped(caption), "\">\n<thead><tr>");
  const auto class_name = [&](std::size_t column) {
    return table.columns[column].is_number ? "number" : "text";
  };
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    out +=
        concat("<th scope=\"col\" class=\"", class_name(i), "\">", escaped(table.columns[i].name), "</th>");
  }
  out += "</tr></thead>\n<tbody>\n";
  for (const auto& row : table.rows) {
    out += concat("<tr><th scope=\"row\">", escaped(row.front().text), "</th>");
    for (std::size_t i = 1; i < row.size(); ++i) {
      out +=
          concat("<td class=\"", class_name(i), class_of(row[i].mark), "\">", escaped(row[i].text), "</td>");
    }
    out += "</tr>\n";
  }
  return out + "</tbody>\n</table>\n</div>\n";
}

std::string three_digits(double value) {
  const double size = std::abs(value);
  return grouped(value, size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3);
}

std::string scientific(double value) {
  if (std::isnan(value)) return "not a number";
  if (std::isinf(value)) return "infinite";
  if (value == 0) return "0";
  const int exponent = static_cast<int>(std::floor(std::log10(std::abs(value)) + 1e-9));
  const std::string digits = printed("%.*f", 1, value / std::pow(10, exponent));
  if (digits.ends_with("10.0"))
    return scientific(value < 0 ? -std::pow(10, exponent + 1) : std::pow(10, exponent + 1));
  return concat(digits.ends_with(".0") ? digits.substr(0, digits.size() - 2) : digits, "e", exponent);
}

std::string exactly(double value) {
  char text[64];
  const auto result = std::to_chars(text, text + sizeof text, value);
  return std::string(text, result.ptr);
}

std::string counted(std::int64_t count, const char* thing) {
  return concat(count, " ", thing, count == 1 ? "" : "s");
}

std::string percent(double share) { return concat(printed("%.*f", 1, 100 * share), " %"); }

std::string mebibytes(std::int64_t bytes) {
  return concat(three_digits(static_cast<double>(bytes) / (1 << 20)), " MiB");
}

}  // namespace stagegpt::compare
