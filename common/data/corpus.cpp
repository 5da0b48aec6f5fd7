#include "common/data/corpus.h"

#include "common/data/char_tokenizer.h"
#include "common/data/file.h"
#include "common/error.h"

namespace stagegpt {

Corpus load_corpus(const std::filesystem::path& path, double val_fraction, std::int64_t block_size) {
  const MappedFile file(path, "--data");
  const std::string_view text = file.text();
  if (text.empty()) user_error("--data: ", path, " is empty");
  Corpus corpus;
  try {
    corpus.tokenizer = std::make_unique<CharTokenizer>(text);
  } catch (const UserError& error) {
    user_error("--data: ", path, ": ", error.what());
  }
  corpus.train = corpus.tokenizer->encode(text);
  const auto held_out = static_cast<std::ptrdiff_t>(static_cast<double>(corpus.train.size()) * val_fraction);
  const std::ptrdiff_t split = std::ssize(corpus.train) - held_out;
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
