#include "common/data/tokenize.h"

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

BlockReader reader_of(const TextSource& text, TextRange range, const Tokenizer& tokenizer,
                      const TokenizeOptions& options) {
  return {text, range, [&](std::string_view block) { return tokenizer.safe_cut(block, options.special); }};
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

// A block that a rank has read, with its tokens where the rank has encoded it.
struct ReadBlock {
  std::size_t document = 0;
  Ids ids;
};

// Every rank reads all blocks, and encodes each size-th one.
class Share {
 public:
  Share(const RankGroup& group, const TextSource& text, TextRange range, const Tokenizer& tokenizer,
        const TokenizeOptions& options)
      : group_(group),
        text_(text),
        tokenizer_(tokenizer),
        options_(options),
        bytes_(range.end - range.begin),
        reader_(reader_of(text, range, tokenizer, options)) {}

  int owner(std::size_t block) const {
    return static_cast<int>(block % static_cast<std::size_t>(group_.size()));
  }
  std::vector<ReadBlock>& blocks() { return blocks_; }
  // What was read, here.
  std::string describe() const {
    return concat(blocks_.size(), " blocks of text with hash ", hash_.hexadecimal());
  }

  void encode_own() {
    struct Own {
      std::size_t index;
      TextBlock block;
    };
    const auto next = [&]() -> std::optional<Own> {
      while (auto block = reader_.next()) {
        const std::size_t index = blocks_.size();
        blocks_.push_back({block->document, {}});
        hash_.add(std::as_bytes(std::span(block->text)));
        options_.progress(done_ += std::ssize(block->text), bytes_);
        if (owner(index) == group_.rank()) return Own{index, std::move(*block)};
      }
      return std::nullopt;
    };
    for_each_in_order(
        options_.threads, next,
        [&](const Own& own) { return std::pair(own.index, encode(text_, own.block, tokenizer_, options_)); },
        [&](std::pair<std::size_t, Ids> own) { blocks_[own.first].ids = std::move(own.second); });
  }

 private:
  const RankGroup& group_;
  const TextSource& text_;
  const Tokenizer& tokenizer_;
  const TokenizeOptions& options_;
  std::int64_t bytes_, done_ = 0;
  BlockReader reader_;
  std::vector<ReadBlock> blocks_;
  ContentHash hash_;
};

Ids broadcast_ids(RankGroup& group, Ids ids, int root) {
  std::size_t size = ids.size();
  group.broadcast(std::as_writable_bytes(std::span(&size, 1)), root);
  ids.resize(size);
  group.broadcast(std::as_writable_bytes(std::span(ids)), root);
  return ids;
}

}  // namespace

void require_utf8(const TextSource& text, const TextBlock& block) {
  const std::size_t valid = utf8_prefix(block.text);
  if (valid == block.text.size()) return;
  user_error(text.flag(), ": ", text.name_of(block.document), " is not UTF-8: byte ",
             block.offset + static_cast<std::int64_t>(valid), "; --tokenizer bpe accepts any bytes");
}

void tokenize(const TextSource& text, TextRange range, const Tokenizer& tokenizer,
              const TokenizeOptions& options, const TokenSink& sink) {
  BlockReader reader = reader_of(text, range, tokenizer, options);
  Joiner joiner(text, tokenizer, sink);
  struct Tokens {
    Ids ids;
    std::size_t document;
    std::int64_t bytes;
  };
  std::int64_t done = 0;
  for_each_in_order(
      options.threads, [&] { return reader.next(); },
      [&](const TextBlock& block) {
        return Tokens{encode(text, block, tokenizer, options), block.document, std::ssize(block.text)};
      },
      [&](const Tokens& tokens) {
        joiner.add(tokens.document, tokens.ids);
        options.progress(done += tokens.bytes, range.end - range.begin);
      });
}

void tokenize_together(RankGroup& group, const TextSource& text, TextRange range, const Tokenizer& tokenizer,
                       const TokenizeOptions& options, const TokenSink& sink) {
  if (group.size() == 1) return tokenize(text, range, tokenizer, options, sink);
  Share share(group, text, range, tokenizer, options);
  agree(group, [&] { share.encode_own(); });
  require_same(group, {{text.flag(), share.describe()}});
  std::vector<ReadBlock>& blocks = share.blocks();
  Joiner joiner(text, tokenizer, sink);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const Ids ids = broadcast_ids(group, std::exchange(blocks[i].ids, {}), share.owner(i));
    agree(group, [&] { joiner.add(blocks[i].document, ids); });
  }
}

}  // namespace stagegpt
