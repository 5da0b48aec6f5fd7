// Copies inputs into a temporary file, because a text is read twice: pipes, what gzip has packed, and the
// texts in JSON Lines.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "common/io/file.h"

namespace stagegpt {

struct Spool {
  struct Document {
    std::int64_t begin = 0, bytes = 0;  // in the copy
    std::int64_t line = 0;              // of the input, from 1 on; 0: the document is all of the input
  };
  FileDescriptor file;  // has no name
  std::vector<Document> documents;
};

// Whether a file begins as gzip's do.
bool is_gzip(const FileDescriptor& file);

// Copies what is left of `file`, unpacked if it is gzip's, into a temporary file in `directory`. With
// `text_field` the input is JSON Lines: each line is an object, the text in that field is a document, and
// empty lines and empty texts are left out. Throws UserError, which names the line, for another input, and
// for a packed file that is damaged.
Spool make_spool(const FileDescriptor& file, const std::filesystem::path& directory,
                 const std::string& text_field);

}  // namespace stagegpt
