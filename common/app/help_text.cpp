#include "common/app/help_text.h"

#include <sstream>

namespace stagegpt {
namespace {

// `head`, then the words of `text` in lines that begin at column `indent`.
std::string in_columns(const std::string& head, const std::string& text, std::size_t indent,
                       std::size_t width) {
  std::string lines = head;
  std::size_t column = indent;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (column > indent && column + 1 + word.size() > width) {
      lines += '\n' + std::string(indent, ' ');
      column = indent;
    }
    if (column > indent) {
      lines += ' ';
      ++column;
    }
    lines += word;
    column += word.size();
  }
  return lines;
}

std::string fitted(const std::string& line, std::size_t width) {
  constexpr std::size_t kNarrow = 24, kShortIndent = 6;
  const std::size_t text = line.find_first_not_of(' ');
  if (line.size() <= width || text == std::string::npos) return line;
  const bool has_two_columns = line.size() > kHelpColumn && line[kHelpColumn - 1] == ' ' &&
                               (line.starts_with("  -") || text == kHelpColumn);
  if (!has_two_columns) return in_columns(line.substr(0, text), line.substr(text), text, width);
  const std::string head = line.substr(0, kHelpColumn), description = line.substr(kHelpColumn);
  if (width >= kHelpColumn + kNarrow) return in_columns(head, description, kHelpColumn, width);
  const std::size_t end = head.find_last_not_of(' ');
  const std::string flag = end == std::string::npos ? "" : head.substr(0, end + 1) + '\n';
  return in_columns(flag + std::string(kShortIndent, ' '), description, kShortIndent, width);
}

}  // namespace

std::string fitted_help(const std::string& help, std::size_t width) {
  std::string text;
  std::istringstream lines(help);
  for (std::string line; std::getline(lines, line);) text += fitted(line, width) + '\n';
  return text;
}

}  // namespace stagegpt
