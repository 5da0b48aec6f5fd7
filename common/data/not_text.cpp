#include "common/data/not_text.h"

#include <utility>

#include "common/base/error.h"
#include "common/data/utf8.h"

namespace stagegpt {

std::string not_text(std::string_view begin) {
  using namespace std::string_view_literals;
  constexpr std::pair<std::string_view, const char*> kKinds[] = {{"\x1f\x8b"sv, "a gzip file"},
                                                                 {"PK\x03\x04"sv, "a zip file"},
                                                                 {"\xfd"
                                                                  "7zXZ\0"sv,
                                                                  "an xz file"},
                                                                 {"\x28\xb5\x2f\xfd"sv, "a zstd file"},
                                                                 {"BZh"sv, "a bzip2 file"},
                                                                 {"\x93NUMPY"sv, "an array of NumPy"},
                                                                 {"PAR1"sv, "a Parquet file"},
                                                                 {"%PDF-"sv, "a PDF file"},
                                                                 {"\xff\xfe"sv, "UTF-16, not UTF-8"},
                                                                 {"\xfe\xff"sv, "UTF-16, not UTF-8"}};
  for (const auto& [bytes, kind] : kKinds) {
    if (begin.starts_with(bytes)) return kind;
  }
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
