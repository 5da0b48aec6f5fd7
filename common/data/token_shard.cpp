#include "common/data/token_shard.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "common/content_hash.h"
#include "common/error.h"
#include "common/stop_signals.h"

namespace stagegpt {
namespace {

static_assert(std::endian::native == std::endian::little, "token shards are little-endian");

using Header = std::array<std::int32_t, 256>;

struct Format {
  std::int32_t magic, version;
  int token_bytes;
};
constexpr Format kFormats[] = {{20240520, 1, 2}, {20240801, 7, 4}};

template <class T>
std::span<const T> tokens_in(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
}

}  // namespace

int token_bytes(std::int64_t vocab_size) { return vocab_size <= (1 << 16) ? 2 : 4; }

TokenShard::TokenShard(const std::filesystem::path& path, std::string_view flag)
    : path_(path), flag_(flag), file_(path, flag), opened_(file_identity(path, flag)) {
  const std::span<const std::byte> bytes = file_.bytes();
  if (bytes.size() < sizeof(Header)) {
    user_error(flag, ": ", path, " has ", bytes.size(), " bytes, fewer than the header of a token shard");
  }
  Header header;
  std::memcpy(header.data(), bytes.data(), sizeof header);
  const auto format = std::ranges::find(kFormats, header[0], &Format::magic);
  if (format == std::end(kFormats)) {
    user_error(flag, ": ", path, " is no token shard: it begins with ", header[0], ", expected ",
               kFormats[0].magic, " or ", kFormats[1].magic);
  }
  if (header[1] != format->version) {
    user_error(flag, ": ", path, " has version ", header[1], ", expected ", format->version);
  }
  token_bytes_ = format->token_bytes;
  size_ = header[2];
  const std::int64_t expected = static_cast<std::int64_t>(sizeof(Header)) + size_ * token_bytes_;
  if (size_ < 0 || std::ssize(bytes) != expected) {
    user_error(flag, ": ", path, " has ", bytes.size(), " bytes, its header announces ", size_,
               " tokens, which is ", expected);
  }
}

TokenSpan TokenShard::tokens() const {
  const std::span<const std::byte> body = file_.bytes().subspan(sizeof(Header));
  if (token_bytes_ == 2) return tokens_in<std::uint16_t>(body);
  return tokens_in<std::uint32_t>(body);
}

std::string TokenShard::verify(std::int64_t vocab_size) const {
  ContentHash hash;
  std::int64_t first = 0;  // token of the block
  const auto require_below = [&](auto tokens) {
    typename decltype(tokens)::value_type largest = 0;  // of all: a loop that may stop is not vectorised
    for (const auto id : tokens) largest = std::max(largest, id);
    if (!tokens.empty() && largest >= vocab_size) {
      user_error(flag_, ": ", path_, ": token ",
                 first + (std::ranges::find(tokens, largest) - tokens.begin()), " is ", largest,
                 ", outside the vocabulary of ", vocab_size);
    }
    first += std::ssize(tokens);
  };
  bool has_header = true;
  read_blocks(path_, PageCache::use, [&](std::span<const std::byte> block) {
    StopSignals::throw_if_requested();
    hash.add(block);
    if (std::exchange(has_header, false)) block = block.subspan(std::min(block.size(), sizeof(Header)));
    if (token_bytes_ == 2) {
      require_below(tokens_in<std::uint16_t>(block));
    } else {
      require_below(tokens_in<std::uint32_t>(block));
    }
  });
  require_unchanged();
  return hash.hexadecimal();
}

void TokenShard::require_unchanged() const {
  if (file_identity(path_, flag_) != opened_)
    user_error(flag_, ": ", path_, " has changed since it was opened");
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

}  // namespace stagegpt
