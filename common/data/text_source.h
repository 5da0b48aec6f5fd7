// The text of one or more files, in order. Each file is a document, or each line of JSON Lines.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/data/tokenizers/special_tokens.h"
#include "common/io/file.h"

namespace stagegpt {

// A range of the text, in bytes, counted over all documents in order.
struct TextRange {
  std::int64_t begin = 0, end = 0;
};

struct TextFormat {
  // With a directory for copies (spool.h), "-" means standard input, pipes are accepted, and what gzip has
  // packed is unpacked.
  std::optional<std::filesystem::path> spool_directory = std::nullopt;
  std::string text_field = {};  // files are JSON Lines, with a text in this field; needs a spool directory
  bool any_bytes = false;       // whether files may be no text
};

class TextSource {
 public:
  // Empty files are skipped. Throws UserError, which names `flag` and the file, if a file cannot be read, is
  // not a regular file, or has another format, and if all files are empty.
  TextSource(const std::vector<std::string>& paths, std::string_view flag, const TextFormat& format = {});

  struct File {
    std::string path;
    std::int64_t bytes = 0, documents = 0;  // of its texts
    FileIdentity identity;                  // when it was first opened
    FileDescriptor spooled;                 // its copy, if there is one
  };
  struct Document {
    std::size_t file = 0;
    std::int64_t begin = 0, bytes = 0;  // in the file or its copy
    std::int64_t line = 0;              // of JSON Lines; 0: all of the file
  };
  const std::vector<File>& files() const { return files_; }
  const std::vector<Document>& documents() const { return documents_; }
  // The file of a document in quotes, and its line.
  std::string name_of(std::size_t document) const;
  const std::string& flag() const { return flag_; }
  std::int64_t bytes() const { return bytes_; }
  TextRange all() const { return {0, bytes_}; }

  // The offset at which the last `fraction` of the bytes begins, moved back to the beginning of a character
  // or of a special token, if there are any.
  std::int64_t split(double fraction, std::span<const SpecialToken> special = {}) const;

 private:
  // Adds the documents of a file, copied first if necessary.
  void add(const std::string& path, const TextFormat& format);

  std::string flag_;
  std::vector<File> files_;
  std::vector<Document> documents_;
  std::int64_t bytes_ = 0;
};

// A part of one document.
struct TextBlock {
  std::string text;
  std::size_t document = 0;
  std::int64_t offset = 0;  // of the block, in the document
};

// Reads a range of the text in blocks, from its beginning to its end.
class BlockReader {
 public:
  // A block ends where `safe_cut` allows it (see Tokenizer::safe_cut), or at the end of a document.
  BlockReader(const TextSource& source, TextRange range,
              std::function<std::size_t(std::string_view)> safe_cut);

  // The next block, or nullopt at the end. Throws UserError if a file has changed since the source opened it,
  // and Stopped after a stop signal.
  std::optional<TextBlock> next();

 private:
  // Appends the next bytes of the document to rest_; false when there are none.
  bool read_more();
  void open_document();

  const TextSource& source_;
  TextRange range_;
  std::function<std::size_t(std::string_view)> safe_cut_;
  std::size_t document_ = 0;
  FileDescriptor file_;              // of the document; open while it is read
  std::int64_t document_begin_ = 0;  // in the text
  std::int64_t read_ = 0;            // bytes of the document read so far
  std::string rest_;                 // read, but not yet returned in a block
};

}  // namespace stagegpt
