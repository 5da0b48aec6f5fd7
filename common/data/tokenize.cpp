#include "common/data/tokenize.h"

#include <optional>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/base/in_order.h"
#include "common/data/utf8.h"

namespace stagegpt {

void require_utf8(const TextSource& text, const TextBlock& block) {
  const std::size_t valid = utf8_prefix(block.text);
  if (valid == block.text.size()) return;
  user_error(text.flag(), ": \"", text.documents()[block.document].path, "\" is not UTF-8: byte ",
             block.offset + static_cast<std::int64_t>(valid), "; --tokenizer bpe accepts any bytes");
}

void tokenize(const TextSource& text, TextRange range, const Tokenizer& tokenizer,
              const TokenizeOptions& options,
              const std::function<void(std::span<const std::int32_t>)>& sink) {
  BlockReader reader(text, range,
                     [&](std::string_view block) { return tokenizer.safe_cut(block, options.special); });
  struct Tokens {
    std::vector<std::int32_t> ids;
    std::size_t document;
    std::int64_t bytes;
  };
  const auto encode = [&](const TextBlock& block) {
    if (tokenizer.needs_utf8()) require_utf8(text, block);
    try {
      return Tokens{tokenizer.encode(block.text, options.special), block.document, std::ssize(block.text)};
    } catch (const UserError& error) {
      user_error(text.flag(), ": \"", text.documents()[block.document].path, "\": ", error.what());
    }
  };
  std::optional<std::size_t> document;
  std::int64_t done = 0;
  for_each_in_order(
      options.threads, [&] { return reader.next(); }, encode,
      [&](const Tokens& tokens) {
        if (document && *document != tokens.document) {
          const std::optional<std::int32_t> end = tokenizer.end_of_text();
          if (!end)
            user_error(text.flag(),
                       ": several documents need an end-of-text token, which this vocabulary does not have");
          sink(std::span(&*end, 1));
        }
        document = tokens.document;
        sink(tokens.ids);
        options.progress(done += tokens.bytes, range.end - range.begin);
      });
}

}  // namespace stagegpt
