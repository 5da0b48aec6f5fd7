#include "common/data/token_shard.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>

#include "common/error.h"

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
std::span<const T> tokens_behind_header(std::span<const std::byte> file) {
  const auto body = file.subspan(sizeof(Header));
  return {reinterpret_cast<const T*>(body.data()), body.size() / sizeof(T)};
}

}  // namespace

int token_bytes(std::int64_t vocab_size) { return vocab_size <= (1 << 16) ? 2 : 4; }

TokenShard::TokenShard(const std::filesystem::path& path, std::string_view flag)
    : path_(path), flag_(flag), file_(path, flag), opened_(identity()) {
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
  if (token_bytes_ == 2) return tokens_behind_header<std::uint16_t>(file_.bytes());
  return tokens_behind_header<std::uint32_t>(file_.bytes());
}

void TokenShard::require_tokens_below(std::int64_t vocab_size) const {
  std::visit(
      [&](auto span) {
        using Token = typename decltype(span)::value_type;
        Token largest = 0;
        for (const Token token : span) largest = std::max(largest, token);
        if (span.empty() || largest < vocab_size) return;
        const auto bad = std::ranges::find(span, largest);
        user_error(flag_, ": ", path_, ": token ", bad - span.begin(), " is ", largest,
                   ", outside the vocabulary of ", vocab_size);
      },
      tokens());
}

void TokenShard::require_unchanged() const {
  if (identity() != opened_) user_error(flag_, ": ", path_, " has changed since it was opened");
}

TokenShard::Identity TokenShard::identity() const {
  struct stat info {};
  if (stat(path_.c_str(), &info) != 0) user_error(flag_, ": cannot read ", path_, ": ", std::strerror(errno));
  return {info.st_dev, info.st_ino, info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec};
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
  file_.write_at(0, std::as_bytes(std::span(header)));
  file_.sync();
}

}  // namespace stagegpt
