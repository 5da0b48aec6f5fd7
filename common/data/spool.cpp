#include "common/data/spool.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>

#include "common/base/error.h"
#include "common/base/json.h"
#include "common/io/work_progress.h"
#include "common/system/stop_signals.h"

namespace stagegpt {
namespace {

constexpr std::size_t kUnpackedBlock = std::size_t{1} << 18;

FileDescriptor make_nameless_file(const std::filesystem::path& directory) {
  std::string name = (directory / "spool.XXXXXX").string();
  FileDescriptor file(mkostemp(name.data(), O_CLOEXEC));
  if (!file.is_open())
    throw std::runtime_error(concat("cannot write into ", directory, ": ", std::strerror(errno)));
  unlink(name.c_str());
  return file;
}

// Passes the content of a file to use(), block by block. zlib hands on what gzip has not packed.
template <class Use>
void read_unpacked(const FileDescriptor& file, const Use& use) {
  const int own = dup(file.get());
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> packed(gzdopen(own, "rb"), gzclose);
  if (!packed) {
    const FileDescriptor closed(own);
    throw std::runtime_error(concat("cannot read: ", std::strerror(errno)));
  }
  gzbuffer(packed.get(), kUnpackedBlock);
  ByteProgress progress("copy");
  struct stat info {};
  const bool sized = fstat(file.get(), &info) == 0 && S_ISREG(info.st_mode);
  std::vector<char> block(kUnpackedBlock);
  int read = 0;
  while ((read = gzread(packed.get(), block.data(), static_cast<unsigned>(block.size()))) > 0) {
    StopSignals::throw_if_requested();
    if (sized) progress(gzoffset(packed.get()), info.st_size);
    use(std::string_view(block.data(), static_cast<std::size_t>(read)));
  }
  int error = Z_OK;
  const std::string message = gzerror(packed.get(), &error);
  if (error == Z_ERRNO) throw std::runtime_error(concat("cannot read: ", std::strerror(errno)));
  if (error == Z_BUF_ERROR) user_error("the gzip file ends too early");
  if (error != Z_OK) user_error("the gzip file is damaged: ", message);
}

// The text of one line of JSON Lines.
std::string text_of(std::string_view line, const std::string& field) {
  const nlohmann::json object = parse_json_line(line);
  if (!object.is_object()) user_error("expected an object, got the JSON type ", object.type_name());
  const auto found = object.find(field);
  if (found != object.end() && found->is_string()) return found->get<std::string>();
  if (found != object.end())
    user_error('\'', field, "' is of the JSON type ", found->type_name(), ", expected a string");
  std::string others;
  for (const auto& [name, value] : object.items()) {
    if (value.is_string()) others += concat(others.empty() ? "" : ", ", '\'', name, '\'');
  }
  user_error("there is no field '", field, "'; strings are in ", others.empty() ? "none" : others);
}

// Cuts JSON Lines into the texts of its lines.
class JsonLines {
 public:
  explicit JsonLines(const std::string& field) : field_(field) {}

  // Passes the text of each line that ends in `block` to use(), with its number.
  template <class Use>
  void add(std::string_view block, const Use& use) {
    for (std::size_t end; (end = block.find('\n')) != block.npos; block.remove_prefix(end + 1)) {
      line_ += block.substr(0, end);
      this->end(use);
    }
    line_ += block;
  }
  // Ends a line.
  template <class Use>
  void end(const Use& use) {
    ++number_;
    if (line_.find_first_not_of(" \t\r") != line_.npos)
      use(naming(concat("line ", number_), [&] { return text_of(line_, field_); }), number_);
    line_.clear();
  }

 private:
  const std::string& field_;
  std::string line_;  // what is read of it
  std::int64_t number_ = 0;
};

}  // namespace

bool is_gzip(const FileDescriptor& file) {
  std::array<unsigned char, 2> begin{};
  return pread(file.get(), begin.data(), begin.size(), 0) == std::ssize(begin) && begin[0] == 0x1F &&
         begin[1] == 0x8B;
}

Spool make_spool(const FileDescriptor& file, const std::filesystem::path& directory,
                 const std::string& text_field) {
  Spool spool{make_nameless_file(directory), {}};
  std::int64_t written = 0;
  const auto write = [&](std::string_view text) {
    write_fully(spool.file, std::as_bytes(std::span(text)), directory);
    written += std::ssize(text);
  };
  if (text_field.empty()) {
    read_unpacked(file, write);
    spool.documents = {{.begin = 0, .bytes = written, .line = 0}};
    return spool;
  }
  JsonLines lines(text_field);
  const auto add = [&](std::string_view text, std::int64_t line) {
    if (!text.empty()) spool.documents.push_back({written, std::ssize(text), line});
    write(text);
  };
  read_unpacked(file, [&](std::string_view block) { lines.add(block, add); });
  lines.end(add);
  return spool;
}

}  // namespace stagegpt
