// The text of one or more files, in order. Each file is a document.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/io/file.h"

namespace stagegpt {

// A range of the text, in bytes, counted over all documents in order.
struct TextRange {
  std::int64_t begin = 0, end = 0;
};

class TextSource {
 public:
  // Empty files are skipped. Throws UserError, which names `flag` and the file, if a file cannot be read or
  // is not a regular file, if it is no text (not_text.h) and not `any_bytes`, or if all files are empty.
  //
  // With a spool directory, "-" means standard input, and files that are not regular, such as pipes, are
  // accepted. They are copied into a temporary file in that directory, because a text may be read twice.
  TextSource(const std::vector<std::string>& paths, std::string_view flag,
             const std::optional<std::filesystem::path>& spool_directory = std::nullopt,
             bool any_bytes = false);

  struct Document {
    std::string path;
    std::int64_t bytes = 0;
    FileIdentity identity;   // when it was first opened
    FileDescriptor spooled;  // its copy, if there is one
  };
  const std::vector<Document>& documents() const { return documents_; }
  const std::string& flag() const { return flag_; }
  std::int64_t bytes() const { return bytes_; }
  TextRange all() const { return {0, bytes_}; }

  // The offset at which the last `fraction` of the bytes begins, moved back to the beginning of a character.
  std::int64_t split(double fraction) const;

 private:
  // Adds a document, copied first if necessary. Skips an empty one.
  void add(const std::string& path, const std::optional<std::filesystem::path>& spool_directory,
           bool any_bytes);

  std::string flag_;
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
