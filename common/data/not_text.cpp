#include "common/data/not_text.h"

#include <algorithm>
#include <utility>

#include "common/base/json.h"
#include "common/data/utf8.h"

namespace stagegpt {
namespace {

// Whether each of the first two lines is an object.
bool begins_as_json_lines(std::string_view begin) {
  for (int line = 0; line < 2; ++line) {
    const std::size_t end = begin.find('\n');
    if (!begin.starts_with('{') || end == begin.npos || !nlohmann::json::accept(begin.substr(0, end)))
      return false;
    begin.remove_prefix(end + 1);
  }
  return true;
}

}  // namespace

std::string kind_of_no_text(std::string_view begin) {
  using namespace std::string_view_literals;
  // Each escape ends with a string, because "\xfd7" would be one escape.
  constexpr std::string_view kXz =
      "\xFD"
      "7zXZ\0"sv;
  constexpr std::pair<std::string_view, const char*> kKinds[] = {
      {"\x1F\x8B", "a gzip file; prepare_data unpacks it"},
      {"PK\x03\x04", "a zip file; unpack it"},
      {kXz, "an xz file; unpack it"},
      {"\x28\xB5\x2F\xFD", "a zstd file; unpack it"},
      {"\x93NUMPY", "an array of NumPy; convert it to a text"},
      {"PAR1", "a Parquet file; convert it to a text"},
      {"%PDF-", "a PDF file; convert it to a text"},
      {"\xFF\xFE\0\0"sv, "UTF-32, not UTF-8; convert it"},
      {"\0\0\xFE\xFF"sv, "UTF-32, not UTF-8; convert it"},
      {"\xFF\xFE", "UTF-16, not UTF-8; convert it"},
      {"\xFE\xFF", "UTF-16, not UTF-8; convert it"}};
  for (const auto& [bytes, kind] : kKinds) {
    if (begin.starts_with(bytes)) return kind;
  }
  if (begin.starts_with("BZh") && begin.substr(4).starts_with("1AY&SY")) return "a bzip2 file; unpack it";
  if (begins_as_json_lines(begin))
    return "JSON Lines; prepare_data takes the texts of a field of it with --text-field";
  const auto zeros = static_cast<std::size_t>(std::ranges::count(begin, '\0'));
  if (100 * zeros > begin.size())
    return concat("no text: ", zeros, " of its first ", begin.size(), " bytes are zero; convert it");
  begin = begin.substr(0, utf8_complete(begin));
  std::size_t invalid = 0;
  for (std::size_t at = 0; at < begin.size();) {
    const std::size_t length = utf8_length(begin, at);
    const std::size_t broken = length > 0 ? 0 : utf8_broken_length(begin, at);
    invalid += broken;
    at += length + broken;
  }
  if (100 * invalid <= begin.size()) return "";
  return concat("no UTF-8: ", invalid, " of its first ", begin.size(),
                " bytes belong to no character; convert it");
}

}  // namespace stagegpt
