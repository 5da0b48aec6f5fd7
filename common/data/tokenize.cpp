#include "common/data/tokenize.h"

#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/base/in_order.h"
#include "common/comm/agreement.h"
#include "common/data/utf8.h"
#include "common/io/content_hash.h"

namespace stagegpt {
namespace {

using Ids = std::vector<std::int32_t>;

Ids encode(const TextSource& text, const TextBlock& block, const Tokenizer& tokenizer,
           const TokenizeOptions& options) {
  if (tokenizer.needs_utf8()) require_utf8(text, block);
  try {
    return tokenizer.encode(block.text, options.special);
  } catch (const UserError& error) {
    user_error(text.flag(), ": ", text.name_of(block.document), ": ", error.what());
  }
}

// Reads a range block by block, and passes the tokens of each block that take() chooses to use(), in order.
template <class Take, class Use>
void encode_blocks(const TextSource& text, TextRange range, const Tokenizer& tokenizer,
                   const TokenizeOptions& options, const Take& take, const Use& use) {
  BlockReader reader(text, range,
                     [&](std::string_view block) { return tokenizer.safe_cut(block, options.special); });
  std::int64_t done = 0;
  const auto next = [&]() -> std::optional<TextBlock> {
    while (auto block = reader.next()) {
      options.progress(done += std::ssize(block->text), range.end - range.begin);
      if (take(*block)) return block;
    }
    return std::nullopt;
  };
  for_each_in_order(
      options.threads, next,
      [&](const TextBlock& block) {
        return std::pair(block.document, encode(text, block, tokenizer, options));
      },
      [&](std::pair<std::size_t, Ids> encoded) { use(encoded.first, std::move(encoded.second)); });
}

// Passes on tokens of blocks, with the end of text between documents.
class Joiner {
 public:
  Joiner(const TextSource& text, const Tokenizer& tokenizer, const TokenSink& sink)
      : text_(text), end_(tokenizer.end_of_text()), sink_(sink) {}

  void add(std::size_t document, std::span<const std::int32_t> ids) {
    if (std::exchange(document_, document).value_or(document) != document) {
      if (!end_)
        user_error(text_.flag(),
                   ": several documents need an end-of-text token, which this vocabulary does not have");
      sink_(std::span(&*end_, 1));
    }
    sink_(ids);
  }

 private:
  const TextSource& text_;
  const std::optional<std::int32_t> end_;
  const TokenSink& sink_;
  std::optional<std::size_t> document_;  // of the last block
};

}  // namespace

void require_utf8(const TextSource& text, const TextBlock& block) {
  const std::size_t valid = utf8_prefix(block.text);
  if (valid == block.text.size()) return;
  user_error(text.flag(), ": ", text.name_of(block.document), " is not UTF-8: byte ",
             block.offset + static_cast<std::int64_t>(valid), "; --tokenizer bpe accepts any bytes");
}

void tokenize(const TextSource& text, TextRange range, const Tokenizer& tokenizer,
              const TokenizeOptions& options, const TokenSink& sink) {
  Joiner joiner(text, tokenizer, sink);
  encode_blocks(
      text, range, tokenizer, options, [](const TextBlock&) { return true; },
      [&](std::size_t document, const Ids& ids) { joiner.add(document, ids); });
}

void tokenize_together(RankGroup& group, const TextSource& text, TextRange range, const Tokenizer& tokenizer,
                       const TokenizeOptions& options, const TokenSink& sink) {
  if (group.size() == 1) return tokenize(text, range, tokenizer, options, sink);
  const auto owner = [&](std::size_t block) {
    return static_cast<int>(block % static_cast<std::size_t>(group.size()));
  };
  std::vector<std::size_t> documents;  // of all blocks
  std::deque<Ids> own;                 // of the blocks that this rank has encoded
  ContentHash hash;
  agree(group, [&] {
    encode_blocks(
        text, range, tokenizer, options,
        [&](const TextBlock& block) {
          hash.add(std::as_bytes(std::span(block.text)));
          documents.push_back(block.document);
          return owner(documents.size() - 1) == group.rank();
        },
        [&](std::size_t, Ids ids) { own.push_back(std::move(ids)); });
  });
  require_same(group,
               {{text.flag(), concat(documents.size(), " blocks of text with hash ", hash.hexadecimal())}});
  Joiner joiner(text, tokenizer, sink);
  for (std::size_t i = 0; i < documents.size(); ++i) {
    Ids ids;
    if (owner(i) == group.rank()) {
      ids = std::move(own.front());
      own.pop_front();
    }
    ids = broadcast_values(group, std::move(ids), owner(i));
    agree(group, [&] { joiner.add(documents[i], ids); });
  }
}

}  // namespace stagegpt
