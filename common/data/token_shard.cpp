#include "common/data/token_shard.h"

#include <algorithm>
#include <array>
#include <bit>
#include <string>
#include <utility>

#include "common/base/error.h"
#include "common/comm/agreement.h"
#include "common/io/content_hash.h"
#include "common/system/stop_signals.h"

namespace stagegpt {
namespace {

static_assert(std::endian::native == std::endian::little, "token shards are little-endian");

using Header = std::array<std::int32_t, 256>;
constexpr std::int64_t kShardHeaderBytes = sizeof(Header);
constexpr std::int64_t kReadBytes = std::int64_t{4} << 20;  // that verify() reads at once
static_assert(kReadBytes % TokenShard::kBlockBytes == 0);

struct Format {
  std::int32_t magic, version;
  int token_bytes;
};
constexpr Format kFormats[] = {{20240520, 1, 2}, {20240801, 7, 4}};

template <class T>
std::span<const T> tokens_in(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
}

[[noreturn]] void fail_truncated(const std::filesystem::path& path, std::int64_t bytes) {
  throw std::runtime_error(
      concat("cannot read ", path, ": it was truncated after it was opened, when it had ", bytes, " bytes"));
}

// Calls use() with the tokens in `bytes` as a span of uint16 or uint32.
template <class Use>
void with_tokens(std::span<const std::byte> bytes, int token_bytes, const Use& use) {
  token_bytes == 2 ? use(tokens_in<std::uint16_t>(bytes)) : use(tokens_in<std::uint32_t>(bytes));
}

// The number of shards and their sizes, as text.
std::string sizes_of(const std::vector<std::shared_ptr<TokenShard>>& shards) {
  std::int64_t tokens = 0;
  std::string sizes;
  for (const auto& shard : shards) {
    tokens += shard->size();
    sizes += concat(shard->size(), ' ');
  }
  return concat(shards.size(), " shards of ", tokens, " tokens, with hash ", hash_of_text(sizes),
                " of their sizes");
}

}  // namespace

int token_bytes(std::int64_t vocab_size) { return vocab_size <= (1 << 16) ? 2 : 4; }

TokenShard::TokenShard(const std::filesystem::path& path, std::string_view flag)
    : path_(path), flag_(flag), file_(open_to_read(path, flag)), file_bytes_(size_of(file_, path, flag)) {
  Header header;
  const std::size_t read = read_at(file_, 0, std::as_writable_bytes(std::span(header)), path);
  if (read < sizeof header) {
    user_error(flag, ": ", path, " has ", read, " bytes, fewer than the header of a token shard");
  }
  const auto format = std::ranges::find(kFormats, header[0], &Format::magic);
  if (format == std::end(kFormats)) {
    user_error(flag, ": ", path, " is not a token shard: it begins with ", header[0], ", expected ",
               kFormats[0].magic, " or ", kFormats[1].magic);
  }
  if (header[1] != format->version) {
    user_error(flag, ": ", path, " has version ", header[1], ", expected ", format->version);
  }
  token_bytes_ = format->token_bytes;
  size_ = header[2];
  const std::int64_t expected = kShardHeaderBytes + size_ * token_bytes_;
  if (size_ < 0 || file_bytes_ != expected) {
    user_error(flag, ": ", path, " has ", file_bytes_, " bytes, its header specifies ", size_, " tokens (",
               expected, " bytes)");
  }
}

ShardContent TokenShard::verify(std::int64_t vocab_size) const {
  ShardContent content;
  ContentHash hash;
  std::int64_t first = 0;  // index of the first token in the buffer
  const auto require_below = [&](auto tokens) {
    // The largest of all tokens, because a loop with an early exit is not vectorised.
    typename decltype(tokens)::value_type largest = 0;
    for (const auto id : tokens) largest = std::max(largest, id);
    if (!tokens.empty() && largest >= vocab_size) {
      user_error(flag_, ": ", path_, ": token ",
                 first + (std::ranges::find(tokens, largest) - tokens.begin()), " is ", largest,
                 ", outside the vocabulary of ", vocab_size);
    }
    first += std::ssize(tokens);
  };
  std::vector<std::byte> buffer(static_cast<std::size_t>(std::min(kReadBytes, file_bytes_)));
  for (std::int64_t at = 0; at < file_bytes_; at += kReadBytes) {
    StopSignals::throw_if_requested();
    const std::span bytes =
        std::span(buffer).first(static_cast<std::size_t>(std::min(kReadBytes, file_bytes_ - at)));
    if (read_at(file_, at, bytes, path_) < bytes.size()) fail_truncated(path_, file_bytes_);
    hash.add(bytes);
    for (std::size_t begin = 0; begin < bytes.size(); begin += kBlockBytes) {
      content.block_hashes.push_back(
          block_hash(bytes.subspan(begin, std::min<std::size_t>(kBlockBytes, bytes.size() - begin))));
    }
    with_tokens(bytes.subspan(at == 0 ? kShardHeaderBytes : 0), token_bytes_, require_below);
  }
  content.hash = hash.hexadecimal();
  return content;
}

void TokenShard::expect(ShardContent content) {
  check(std::ssize(content.block_hashes) == blocks(), "token shard: ", content.block_hashes.size(),
        " hashes for ", blocks(), " blocks");
  content_ = std::move(content);
  std::vector<std::byte> buffer(kBlockBytes);
  std::span<const std::byte> block;
  for (const std::int64_t index : {std::int64_t{0}, blocks() - 1}) {
    if (!read_block(index, buffer, block))
      user_error(flag_, ": ", path_, " is not the same file on all ranks");
  }
}

void TokenShard::read(std::int64_t first, std::span<std::int32_t> out) const {
  const std::int64_t begin = kShardHeaderBytes + first * token_bytes_;
  const std::int64_t end = begin + std::ssize(out) * token_bytes_;
  std::vector<std::byte> buffer(kBlockBytes);
  std::span<const std::byte> block;
  auto next = out.begin();
  for (std::int64_t index = begin / kBlockBytes; next != out.end(); ++index) {
    const std::int64_t block_begin = index * kBlockBytes;
    if (!read_block(index, buffer, block)) {
      throw std::runtime_error(
          concat(flag_, ": ", path_, " has changed since the run began, or is damaged: bytes ", block_begin,
                 " to ", block_begin + std::ssize(block) - 1, " are not those that were verified"));
    }
    const std::int64_t from = std::max(begin, block_begin),
                       to = std::min(end, block_begin + std::ssize(block));
    with_tokens(
        block.subspan(static_cast<std::size_t>(from - block_begin), static_cast<std::size_t>(to - from)),
        token_bytes_, [&](auto tokens) { next = std::ranges::copy(tokens, next).out; });
  }
}

bool TokenShard::read_block(std::int64_t index, std::span<std::byte> buffer,
                            std::span<const std::byte>& block) const {
  check(index < std::ssize(content_.block_hashes), "token shard: block ", index, " of ",
        content_.block_hashes.size(), " that are known");
  const std::int64_t begin = index * kBlockBytes;
  buffer = buffer.first(static_cast<std::size_t>(std::min(kBlockBytes, file_bytes_ - begin)));
  if (read_at(file_, begin, buffer, path_) < buffer.size()) fail_truncated(path_, file_bytes_);
  block = buffer;
  return block_hash(block) == content_.block_hashes[static_cast<std::size_t>(index)];
}

TokenShardWriter::TokenShardWriter(const std::filesystem::path& path, int token_bytes)
    : file_(path), token_bytes_(token_bytes) {
  const Header empty{};
  file_.write(std::as_bytes(std::span(empty)));
}

void TokenShardWriter::append(std::span<const std::int32_t> ids) {
  check(size_ + std::ssize(ids) <= TokenShard::kMaxTokens, "token shard: too many tokens");
  if (token_bytes_ == 2) {
    const std::vector<std::uint16_t> narrow(ids.begin(), ids.end());
    file_.write(std::as_bytes(std::span(narrow)));
  } else {
    file_.write(std::as_bytes(ids));
  }
  size_ += std::ssize(ids);
}

void TokenShardWriter::finish() {
  file_.sync();
  const Format& format = token_bytes_ == 2 ? kFormats[0] : kFormats[1];
  Header header{};
  header[0] = format.magic;
  header[1] = format.version;
  header[2] = static_cast<std::int32_t>(size_);
  file_.rewind();
  file_.write(std::as_bytes(std::span(header)));
  file_.sync();
}

void verify_shards(RankGroup& group, const std::vector<std::shared_ptr<TokenShard>>& shards,
                   std::int64_t vocab_size, const char* flag) {
  require_same(group, {{flag, sizes_of(shards)}});
  const auto owner = [&](std::size_t shard) {
    return static_cast<int>(shard % static_cast<std::size_t>(group.size()));
  };
  std::vector<ShardContent> contents(shards.size());
  agree(group, [&] {
    for (std::size_t i = 0; i < shards.size(); ++i) {
      if (owner(i) == group.rank()) contents[i] = shards[i]->verify(vocab_size);
    }
  });
  for (std::size_t i = 0; i < shards.size(); ++i) {
    ShardContent& content = contents[i];
    content.hash = broadcast_text(group, std::move(content.hash), owner(i));
    content.block_hashes = broadcast_values(group, std::move(content.block_hashes), owner(i));
  }
  agree(group, [&] {
    for (std::size_t i = 0; i < shards.size(); ++i) shards[i]->expect(std::move(contents[i]));
  });
}

}  // namespace stagegpt
