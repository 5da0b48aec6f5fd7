#include "common/data/token_sequence.h"

#include <algorithm>

#include "common/base/error.h"
#include "common/io/content_hash.h"

namespace stagegpt {
namespace {

template <class Token>
std::shared_ptr<const std::vector<Token>> shared_copy(std::span<const std::int32_t> ids) {
  return std::make_shared<const std::vector<Token>>(ids.begin(), ids.end());
}

}  // namespace

TokenSequence::TokenSequence(const std::vector<std::int32_t>& ids) {
  append(ids, INT32_MAX);  // any vocabulary that needs 32 bits
}

void TokenSequence::append(std::shared_ptr<const TokenShard> shard) {
  append({.size = shard->size(), .tokens = std::move(shard)});
}

void TokenSequence::append(std::span<const std::int32_t> ids, std::int64_t vocab_size) {
  token_bytes(vocab_size) == 2 ? append({.size = std::ssize(ids), .tokens = shared_copy<std::uint16_t>(ids)})
                               : append({.size = std::ssize(ids), .tokens = shared_copy<std::uint32_t>(ids)});
}

void TokenSequence::append(const TokenSequence& tokens) {
  for (const Segment& segment : tokens.segments_) append(segment);
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
    const std::int64_t from = first - segment->first;
    const std::int64_t count = std::min(std::ssize(out), segment->size - from);
    copy(*segment, from, out.first(static_cast<std::size_t>(count)));
    out = out.subspan(static_cast<std::size_t>(count));
    first += count;
  }
}

void TokenSequence::copy(const Segment& segment, std::int64_t from, std::span<std::int32_t> out) {
  from += segment.offset;
  if (const auto* shard = std::get_if<std::shared_ptr<const TokenShard>>(&segment.tokens)) {
    (*shard)->read(from, out);
  } else if (const auto* narrow =
                 std::get_if<std::shared_ptr<const std::vector<std::uint16_t>>>(&segment.tokens)) {
    std::copy_n((*narrow)->begin() + from, out.size(), out.begin());
  } else {
    std::copy_n(std::get<std::shared_ptr<const std::vector<std::uint32_t>>>(segment.tokens)->begin() + from,
                out.size(), out.begin());
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
    cut.offset += begin - segment.first;
    cut.size = end - begin;
    part.append(std::move(cut));
  }
  return part;
}

TokenIdentity TokenSequence::identity() const {
  std::string shards;
  for (const Segment& segment : segments_) {
    const auto* shard = std::get_if<std::shared_ptr<const TokenShard>>(&segment.tokens);
    if (shard == nullptr) return {TokenIdentity::Of::ids, hash_of_tokens(*this)};
    shards += concat((*shard)->hash(), ' ', segment.offset, ' ', segment.size, '\n');
  }
  return {TokenIdentity::Of::shards, hash_of_text(shards)};
}

std::string hash_of_tokens(const TokenSequence& tokens) {
  constexpr std::int64_t kBlock = 1 << 18;
  ContentHash hash;
  for (std::int64_t first = 0; first < tokens.size(); first += kBlock) {
    const auto ids = tokens.read(first, std::min(kBlock, tokens.size() - first));
    hash.add(std::as_bytes(std::span(ids)));
  }
  return hash.hexadecimal();
}

}  // namespace stagegpt
