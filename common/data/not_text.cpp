#include "common/data/not_text.h"

#include <utility>

#include "common/base/error.h"
#include "common/data/utf8.h"

namespace stagegpt {

std::string kind_of_no_text(std::string_view begin) {
  using namespace std::string_view_literals;
  // Each escape ends with a string, because "\xfd7" would be one escape.
  constexpr std::string_view kXz =
      "\xFD"
      "7zXZ\0"sv;
  constexpr std::pair<std::string_view, const char*> kKinds[] = {{"\x1F\x8B", "a gzip file"},
                                                                 {"PK\x03\x04", "a zip file"},
                                                                 {kXz, "an xz file"},
                                                                 {"\x28\xB5\x2F\xFD", "a zstd file"},
                                                                 {"\x93NUMPY", "an array of NumPy"},
                                                                 {"PAR1", "a Parquet file"},
                                                                 {"%PDF-", "a PDF file"},
                                                                 {"\xFF\xFE", "UTF-16, not UTF-8"},
                                                                 {"\xFE\xFF", "UTF-16, not UTF-8"}};
  for (const auto& [bytes, kind] : kKinds) {
    if (begin.starts_with(bytes)) return kind;
  }
  if (begin.starts_with("BZh") && begin.substr(4).starts_with("1AY&SY")) return "a bzip2 file";
  begin = begin.substr(0, utf8_complete(begin));
  std::size_t invalid = 0;
  for (std::size_t at = 0; at < begin.size();) {
    const std::size_t length = utf8_length(begin, at);
    const std::size_t broken = length > 0 ? 0 : utf8_broken_length(begin, at);
    invalid += broken;
    at += length + broken;
  }
  if (100 * invalid <= begin.size()) return "";
  return concat("no UTF-8: ", invalid, " of its first ", begin.size(), " bytes belong to no character");
}

}  // namespace stagegpt
