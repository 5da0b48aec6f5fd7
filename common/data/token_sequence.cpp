#include "common/data/token_sequence.h"

#include <algorithm>

#include "common/content_hash.h"
#include "common/error.h"

namespace stagegpt {
namespace {

template <class Token>
std::shared_ptr<const std::vector<Token>> shared_copy(std::span<const std::int32_t> ids) {
  return std::make_shared<const std::vector<Token>>(ids.begin(), ids.end());
}

}  // namespace

TokenSequence::TokenSequence(const std::vector<std::int32_t>& ids) {
  append(ids, INT32_MAX);  // of a vocabulary that needs 32 bits
}

void TokenSequence::append(std::shared_ptr<const TokenShard> shard) {
  Segment segment;
  segment.size = shard->size();
  segment.tokens = shard->tokens();
  segment.shard = shard.get();
  segment.owner = std::move(shard);
  append(std::move(segment));
}

void TokenSequence::append(std::span<const std::int32_t> ids, std::int64_t vocab_size) {
  Segment segment;
  segment.size = std::ssize(ids);
  if (token_bytes(vocab_size) == 2) {
    const auto tokens = shared_copy<std::uint16_t>(ids);
    segment.tokens = std::span(*tokens);
    segment.owner = tokens;
  } else {
    const auto tokens = shared_copy<std::uint32_t>(ids);
    segment.tokens = std::span(*tokens);
    segment.owner = tokens;
  }
  append(std::move(segment));
}

void TokenSequence::append(Segment segment) {
  if (segment.size == 0) return;
  segment.first = size_;
  size_ += segment.size;
  segments_.push_back(std::move(segment));
}

void TokenSequence::read(std::int64_t first, std::span<std::int32_t> out) const {
  check(first >= 0 && first + std::ssize(out) <= size_, "tokens: ", out.size(), " from ", first, " of ",
        size_);
  auto segment = std::ranges::upper_bound(segments_, first, {}, &Segment::first);
  if (!out.empty()) --segment;
  for (; !out.empty(); ++segment) {
    if (segment->shard) segment->shard->require_unchanged();
    const std::int64_t from = first - segment->first;
    const auto count =
        static_cast<std::size_t>(std::min<std::int64_t>(std::ssize(out), segment->size - from));
    std::visit(
        [&](auto tokens) {
          std::ranges::copy(tokens.subspan(static_cast<std::size_t>(from), count), out.begin());
        },
        segment->tokens);
    out = out.subspan(count);
    first += static_cast<std::int64_t>(count);
  }
}

std::vector<std::int32_t> TokenSequence::read(std::int64_t first, std::int64_t count) const {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
  read(first, ids);
  return ids;
}

TokenSequence TokenSequence::slice(std::int64_t first, std::int64_t count) const {
  check(first >= 0 && count >= 0 && first + count <= size_, "tokens: slice of ", count, " from ", first,
        " of ", size_);
  TokenSequence part;
  for (const Segment& segment : segments_) {
    const std::int64_t begin = std::max(first, segment.first);
    const std::int64_t end = std::min(first + count, segment.first + segment.size);
    if (begin >= end) continue;
    Segment cut = segment;
    cut.size = end - begin;
    cut.tokens = std::visit(
        [&](auto tokens) {
          return TokenSpan(tokens.subspan(static_cast<std::size_t>(begin - segment.first),
                                          static_cast<std::size_t>(end - begin)));
        },
        segment.tokens);
    part.append(std::move(cut));
  }
  return part;
}

std::string content_hash(const TokenSequence& tokens) {
  constexpr std::int64_t kBlock = 1 << 18;
  ContentHash hash;
  for (std::int64_t first = 0; first < tokens.size(); first += kBlock) {
    const auto ids = tokens.read(first, std::min(kBlock, tokens.size() - first));
    hash.add(std::as_bytes(std::span(ids)));
  }
  return hash.hexadecimal();
}

}  // namespace stagegpt
