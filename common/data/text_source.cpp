#include "common/data/text_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "common/base/error.h"
#include "common/base/json.h"
#include "common/data/spool.h"
#include "common/data/utf8.h"
#include "common/system/stop_signals.h"

namespace stagegpt {
namespace {

constexpr std::size_t kBlockBytes = std::size_t{1} << 18;

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

// What a file is that begins with these bytes, and what to do with it ("a zip file; unpack it"), or why they
// are no text: more than a hundredth is not UTF-8, or zero. Empty for a text.
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

void require_text(const FileDescriptor& file, const std::string& path, const std::string& flag) {
  constexpr std::size_t kSeen = std::size_t{1} << 16;
  std::string begin(kSeen, '\0');
  begin.resize(read_at(file, 0, std::as_writable_bytes(std::span(begin)), path));
  if (const std::string kind = kind_of_no_text(begin); !kind.empty()) {
    user_error(flag, ": \"", path, "\" is ", kind, ", or take its bytes as they are with --any-bytes");
  }
}

// Opens an input; `waits`: also a pipe, until it has a writer.
FileDescriptor open_input(const std::string& path, bool waits) {
  if (path == "-" && waits) return FileDescriptor(dup(STDIN_FILENO));
  return FileDescriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC | (waits ? 0 : O_NONBLOCK)));
}

}  // namespace

TextSource::TextSource(const std::vector<std::string>& paths, std::string_view flag, const TextFormat& format)
    : flag_(flag) {
  for (const std::string& path : paths) add(path, format);
  if (documents_.empty()) {
    user_error(flag, ": ", paths.size() == 1 ? concat('"', paths[0], "\" is empty") : "all files are empty");
  }
}

void TextSource::add(const std::string& path, const TextFormat& format) {
  const FileDescriptor input = open_input(path, format.spool_directory.has_value());
  if (!input.is_open()) fail_to_open(path, flag_, errno);
  struct stat info {};
  if (fstat(input.get(), &info) != 0) fail_to_open(path, flag_, errno);
  if (S_ISDIR(info.st_mode)) user_error(flag_, ": \"", path, "\" is a directory, expected a file");
  const bool regular = S_ISREG(info.st_mode) && path != "-";
  if (!regular && !format.spool_directory) user_error(flag_, ": \"", path, "\" is not a regular file");
  File file{.path = path, .identity = {}, .spooled = FileDescriptor()};
  std::vector<Spool::Document> documents{{.begin = 0, .bytes = info.st_size}};
  if (format.spool_directory && (!regular || !format.text_field.empty() || is_gzip(input))) {
    Spool spool = naming(flag_, [&] {
      return naming(concat('"', path, '"'),
                    [&] { return make_spool(input, *format.spool_directory, format.text_field); });
    });
    file.spooled = std::move(spool.file);
    documents = std::move(spool.documents);
  } else {
    file.identity = file_identity(path, flag_);
  }
  for (const Spool::Document& document : documents) {
    if (document.bytes == 0) continue;
    documents_.push_back({files_.size(), document.begin, document.bytes, document.line});
    file.bytes += document.bytes;
    ++file.documents;
  }
  if (file.bytes == 0) return;
  if (!format.any_bytes && format.text_field.empty())
    require_text(file.spooled.is_open() ? file.spooled : input, path, flag_);
  bytes_ += file.bytes;
  files_.push_back(std::move(file));
}

std::string TextSource::name_of(std::size_t document) const {
  const Document& named = documents_[document];
  return concat('"', files_[named.file].path, '"', named.line > 0 ? concat(", line ", named.line) : "");
}

std::int64_t TextSource::split(double fraction, std::span<const SpecialToken> special) const {
  std::size_t longest = 4;  // bytes of a character
  for (const SpecialToken& token : special) longest = std::max(longest, token.text.size());
  const std::int64_t at = bytes() - static_cast<std::int64_t>(static_cast<double>(bytes()) * fraction),
                     more = static_cast<std::int64_t>(longest) - 1;
  const TextRange around{std::max<std::int64_t>(0, at - more), std::min(bytes(), at + more)};
  std::string text;
  BlockReader reader(*this, around, [](std::string_view block) { return block.size(); });
  while (const auto block = reader.next()) text += block->text;
  std::size_t cut = static_cast<std::size_t>(at - around.begin);
  for (const SpecialToken& token : special) {
    const std::size_t size = token.text.size(),
                      begin = text.find(token.text, cut < size ? 0 : cut - size + 1);
    if (begin < cut && cut < begin + size) cut = begin;
  }
  return around.begin + static_cast<std::int64_t>(utf8_boundary(text, cut));
}

BlockReader::BlockReader(const TextSource& source, TextRange range,
                         std::function<std::size_t(std::string_view)> safe_cut)
    : source_(source), range_(range), safe_cut_(std::move(safe_cut)) {
  const auto& documents = source.documents();
  while (document_ < documents.size() && document_begin_ + documents[document_].bytes <= range.begin) {
    document_begin_ += documents[document_++].bytes;
  }
  read_ = range.begin - document_begin_;
}

void BlockReader::open_document() {
  const TextSource::File& file = source_.files()[source_.documents()[document_].file];
  file_ = FileDescriptor(file.spooled.is_open() ? dup(file.spooled.get())
                                                : open(file.path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file_.is_open()) fail_to_open(file.path, source_.flag(), errno);
}

bool BlockReader::read_more() {
  const TextSource::Document& document = source_.documents()[document_];
  const TextSource::File& file = source_.files()[document.file];
  if (!file_.is_open()) open_document();
  const std::int64_t end = std::min(document.bytes, range_.end - document_begin_);
  const std::size_t before = rest_.size();
  // A block that cannot be cut yet is doubled, so a long one needs few attempts.
  const auto most = static_cast<std::int64_t>(std::max(kBlockBytes, before));
  const auto wanted = static_cast<std::size_t>(std::clamp<std::int64_t>(end - read_, 0, most));
  rest_.resize(before + wanted);
  const std::span added = std::as_writable_bytes(std::span(rest_)).subspan(before);
  const std::size_t done = read_at(file_, document.begin + read_, added, file.path);
  const bool changed = !file.spooled.is_open() && file_identity(file.path, source_.flag()) != file.identity;
  if (done < wanted || changed) {
    user_error(source_.flag(), ": \"", file.path, "\" has changed while it was read");
  }
  read_ += static_cast<std::int64_t>(wanted);
  return wanted > 0;
}

std::optional<TextBlock> BlockReader::next() {
  StopSignals::throw_if_requested();
  const bool all_read = document_ == source_.documents().size() || document_begin_ + read_ >= range_.end;
  if (all_read && rest_.empty()) return std::nullopt;
  std::size_t cut = 0;
  bool more = true;
  while (cut == 0 && (more = read_more())) cut = safe_cut_(rest_);
  if (!more) cut = rest_.size();
  TextBlock block{rest_.substr(0, cut), document_, read_ - static_cast<std::int64_t>(rest_.size())};
  rest_.erase(0, cut);
  if (!more) {
    document_begin_ += source_.documents()[document_++].bytes;
    read_ = 0;
    file_ = FileDescriptor();
  }
  return block;
}

}  // namespace stagegpt
