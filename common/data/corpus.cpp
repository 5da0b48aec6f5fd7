#include "common/data/corpus.h"

#include <cerrno>
#include <cstring>
#include <fstream>

#include "common/data/char_tokenizer.h"
#include "common/error.h"

namespace stagegpt {

std::string read_file(const std::filesystem::path& path, std::string_view flag) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) user_error(flag, ": there is no file ", path);
  if (std::filesystem::is_directory(status)) user_error(flag, ": ", path, " is a directory, expected a file");
  std::ifstream in(path, std::ios::binary);
  if (!in) user_error(flag, ": cannot open ", path, ": ", std::strerror(errno));
  std::string bytes{std::istreambuf_iterator<char>(in), {}};
  if (in.bad()) user_error(flag, ": cannot read ", path, ": ", std::strerror(errno));
  if (bytes.empty()) user_error(flag, ": ", path, " is empty");
  return bytes;
}

Corpus load_corpus(const std::filesystem::path& path, double val_fraction, std::int64_t block_size) {
  const std::string text = read_file(path, "--data");
  Corpus corpus;
  try {
    corpus.tokenizer = std::make_unique<CharTokenizer>(text);
  } catch (const UserError& error) {
    user_error("--data: ", path, ": ", error.what());
  }
  corpus.train = corpus.tokenizer->encode(text);
  const auto split =
      static_cast<std::ptrdiff_t>(static_cast<double>(corpus.train.size()) * (1 - val_fraction));
  corpus.validation.assign(corpus.train.begin() + split, corpus.train.end());
  corpus.train.resize(static_cast<std::size_t>(split));
  for (const auto& [name, tokens] :
       {std::pair{"training", &corpus.train}, {"validation", &corpus.validation}}) {
    if (static_cast<std::int64_t>(tokens->size()) < block_size + 1) {
      user_error("--data: ", path, " leaves ", tokens->size(), " tokens for ", name,
                 ", fewer than one window of ", block_size + 1,
                 "; give a longer text, another --val-fraction or a smaller --block-size");
    }
  }
  return corpus;
}

}  // namespace stagegpt
