// The text of one or more files, in order: each is a document.
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

// A stretch of the text, in bytes. The bytes of all documents count, one behind the other.
struct TextRange {
  std::int64_t begin = 0, end = 0;
};

class TextSource {
 public:
  // Empty files are left out. Throws UserError, naming `flag` and the file, for one that cannot be read, is
  // not a regular file or, when all are, is empty.
  //
  // With a directory to spool into, "-" is standard input, and what is not a regular file is taken too: they
  // are copied there, into a file without a name, since a text may have to be read twice.
  TextSource(const std::vector<std::string>& paths, std::string_view flag,
             const std::optional<std::filesystem::path>& spool_directory = std::nullopt);

  struct Document {
    std::string path;
    std::int64_t bytes = 0;
    FileIdentity identity;   // when it was first seen
    FileDescriptor spooled;  // where it was copied
  };
  const std::vector<Document>& documents() const { return documents_; }
  const std::string& flag() const { return flag_; }
  std::int64_t bytes() const { return bytes_; }
  TextRange all() const { return {0, bytes_}; }

  // Where the last `fraction` of the bytes begins, moved back to the beginning of a character.
  std::int64_t split(double fraction) const;

 private:
  // Adds a document, or copies it first; leaves an empty one out.
  void add(const std::string& path, const std::optional<std::filesystem::path>& spool_directory);

  std::string flag_;
  std::vector<Document> documents_;
  std::int64_t bytes_ = 0;
};

// A part of one document.
struct TextBlock {
  std::string text;
  std::size_t document = 0;
  std::int64_t offset = 0;  // of the text, in the document
};

// Reads a range from its beginning to its end, one block after the other.
class BlockReader {
 public:
  // Blocks end where `safe_cut` allows it (see Tokenizer::safe_cut), or with a document.
  BlockReader(const TextSource& source, TextRange range,
              std::function<std::size_t(std::string_view)> safe_cut);

  // Nothing at the end. Throws UserError when a file has changed since the source first saw it, Stopped when
  // a signal has come.
  std::optional<TextBlock> next();

 private:
  // Appends the next bytes of the document to rest_; false when there are none.
  bool read_more();
  void open_document();

  const TextSource& source_;
  TextRange range_;
  std::function<std::size_t(std::string_view)> safe_cut_;
  std::size_t document_ = 0;
  FileDescriptor file_;              // of the document, once it is read
  std::int64_t document_begin_ = 0;  // in the text
  std::int64_t read_ = 0;            // how far, in the document
  std::string rest_;                 // read and not given out
};

}  // namespace stagegpt
