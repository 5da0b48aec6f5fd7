#include "common/train/piece_stream.h"

#include <algorithm>
#include <exception>
#include <numeric>
#include <utility>

#include "common/comm/agreement.h"

namespace stagegpt {

PieceStream::PieceStream(RankGroup& group, Backend& backend, const ParameterTable& table,
                         const std::vector<OwnedArena>& arenas, std::vector<Writer> writers)
    : group_(group), backend_(backend), table_(table), arenas_(arenas), writers_(std::move(writers)) {
  for (const OwnedArena& arena : arenas_) divisions_.push_back(division_of(group_, arena.owned));
  for (const Writer& writer : writers_) turns_ = std::max(turns_, writer.fetches.size());
  agree(group_, [&] {
    if (group_.size() > 1) message_.resize(kElements);
  });
}

PieceStream::Division PieceStream::division_of(RankGroup& group, const ArenaParts& owned) {
  Division division{owned.size(), gather(group, owned), {}};
  division.in_order.resize(division.owned.size());
  std::iota(division.in_order.begin(), division.in_order.end(), std::size_t{0});
  std::ranges::sort(division.in_order, {},
                    [&](std::size_t i) { return std::pair(division.owned[i].begin, division.owned[i].end); });
  return division;
}

void PieceStream::run(const std::function<void()>& body) {
  agree(group_, [&] {
    std::exception_ptr failure;
    try {
      body();
    } catch (const OtherRankFailed&) {
    } catch (...) {
      failure = std::current_exception();
      failed_ = true;
    }
    serve_rest();
    if (failure) std::rethrow_exception(failure);
  });
}

ParameterValues PieceStream::values(std::size_t arena) {
  return [this, arena](std::size_t i, std::int64_t begin, std::span<float> out) {
    fetch({arena, {i, begin, begin + std::ssize(out)}}, out);
  };
}

void PieceStream::fetch(const Fetch& fetch, std::span<float> out) {
  if (!serve_until_own()) {
    check(stopped_, "piece stream: rank ", group_.rank(), " fetches more than was announced");
    throw OtherRankFailed();
  }
  const Writer& writer = writers_[writer_];
  check(writer.fetches[turn_] == fetch, "piece stream: fetch ", turn_, " is not the one that was announced");
  transfer(writer, fetch, out);
  ++writer_;
}

void PieceStream::serve_rest() {
  while (serve_until_own()) {
    transfer(writers_[writer_], writers_[writer_].fetches[turn_], {});
    ++writer_;
  }
}

bool PieceStream::serve_until_own() {
  constexpr std::size_t kTurns = 8;  // after so many, the ranks tell each other whether one has failed
  while (!stopped_ && turn_ < turns_) {
    for (; writer_ < writers_.size(); ++writer_) {
      const Writer& writer = writers_[writer_];
      if (turn_ >= writer.fetches.size()) continue;
      if (writer.rank == group_.rank()) return true;
      transfer(writer, writer.fetches[turn_], {});
    }
    writer_ = 0;
    ++turn_;
    if (turn_ % kTurns == 0 || turn_ == turns_) stopped_ = any(group_, failed_);
  }
  return false;
}

void PieceStream::transfer(const Writer& writer, const Fetch& fetch, std::span<float> out) {
  group_.beat();
  const std::int64_t offset = table_[fetch.piece.parameter].offset;
  const std::int64_t first = offset + fetch.piece.begin, end = offset + fetch.piece.end;
  for (std::int64_t begin = first; begin < end;) {
    const Source source = source_of(divisions_[fetch.arena], begin, writer.rank);
    const bool moves = source.from != writer.rank;
    std::int64_t size = std::min(end, source.end) - begin;
    if (moves) size = std::min(size, kElements);
    const auto at = static_cast<std::size_t>(begin - first), n = static_cast<std::size_t>(size);
    if (moves && source.from == group_.rank()) {
      const std::span<float> message = std::span(message_).first(n);
      copy_own(fetch, source.part, begin, message);
      group_.send(std::as_bytes(message), writer.rank);
    } else if (moves && writer.rank == group_.rank()) {
      const std::span<float> message = out.empty() ? std::span(message_).first(n) : out.subspan(at, n);
      group_.receive(std::as_writable_bytes(message), source.from);
    } else if (writer.rank == group_.rank() && !out.empty()) {
      copy_own(fetch, source.part, begin, out.subspan(at, n));
    }
    begin += size;
  }
}

PieceStream::Source PieceStream::source_of(const Division& division, std::int64_t begin, int writer) const {
  const auto& [parts, owned, in_order] = division;
  const auto found = [&](std::size_t i) {
    return Source{static_cast<int>(i / parts), i % parts, owned[i].end};
  };
  const std::size_t own = static_cast<std::size_t>(writer) * parts;
  for (std::size_t i = own; i < own + parts; ++i) {
    if (owned[i].begin <= begin && begin < owned[i].end) return found(i);
  }
  const auto behind =
      std::ranges::upper_bound(in_order, begin, {}, [&](std::size_t i) { return owned[i].begin; });
  check(behind != in_order.begin() && begin < owned[*(behind - 1)].end, "piece stream: no rank owns element ",
        begin);
  return found(*(behind - 1));
}

void PieceStream::copy_own(const Fetch& fetch, std::size_t part, std::int64_t begin,
                           std::span<float> out) const {
  const OwnedArena& arena = arenas_[fetch.arena];
  backend_.copy_to_host(std::as_writable_bytes(out),
                        arena.parts[part].slice(begin - arena.owned[part].begin, {std::ssize(out)}));
}

}  // namespace stagegpt
