#include "common/train/piece_stream.h"

#include <algorithm>
#include <exception>
#include <numeric>
#include <utility>

#include "common/comm/agreement.h"

namespace stagegpt {
namespace {

// Elements from `begin` on of an arena, to their places in a piece.
void copy_to_places(std::span<const PlacedRun> runs, std::int64_t begin, std::span<const float> elements,
                    std::span<float> piece) {
  const std::int64_t end = begin + std::ssize(elements);
  for (const PlacedRun& run : runs) {
    const std::int64_t first = std::max(run.begin, begin), size = std::min(run.begin + run.size, end) - first;
    if (size > 0)
      std::copy_n(elements.begin() + first - begin, size, piece.begin() + run.at + first - run.begin);
  }
}

}  // namespace

PieceLayout placed_as_in(const ParameterTable& table) {
  return [&table](const Piece& piece) {
    return std::vector<PlacedRun>{{0, table[piece.parameter].offset + piece.begin, piece.size()}};
  };
}

PieceStream::PieceStream(RankGroup& group, Backend& backend, PieceLayout layout,
                         const std::vector<OwnedArena>& arenas, std::vector<Writer> writers)
    : group_(group),
      backend_(backend),
      layout_(std::move(layout)),
      arenas_(arenas),
      writers_(std::move(writers)) {
  for (const OwnedArena& arena : arenas_) divisions_.push_back(division_of(group_, arena.owned));
  for (const Writer& writer : writers_) turns_ = std::max(turns_, writer.fetches.size());
  agree(group_, [&] {
    if (group_.size() > 1) message_.resize(kElements);
  });
}

PieceStream::Division PieceStream::division_of(RankGroup& group, ArenaParts owned) {
  owned.resize(std::ranges::max(gather(group, owned.size())));
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
  const std::vector<PlacedRun> runs = layout_(fetch.piece);
  for (auto first = runs.begin(); first != runs.end();) {
    auto end = first + 1;
    while (end != runs.end() && end->begin == (end - 1)->begin + (end - 1)->size) ++end;
    transfer(writer.rank, fetch.arena, {first, end}, out);
    first = end;
  }
}

void PieceStream::transfer(int writer, std::size_t arena, std::span<const PlacedRun> runs,
                           std::span<float> out) {
  const std::int64_t first = runs.front().begin, end = runs.back().begin + runs.back().size;
  const bool writes = writer == group_.rank();
  // Several runs are received as one message, and then copied to their places.
  const bool in_place = runs.size() == 1 && !out.empty();
  for (std::int64_t begin = first; begin < end;) {
    const Source source = source_of(divisions_[arena], begin, writer);
    const bool moves = source.from != writer;
    std::int64_t size = std::min(end, source.end) - begin;
    if (moves || runs.size() > 1) size = std::min(size, kElements);
    const auto at = static_cast<std::size_t>(runs.front().at + begin - first),
               n = static_cast<std::size_t>(size);
    if (source.from == group_.rank() && moves) {
      const std::span<float> message = std::span(message_).first(n);
      copy_own(arena, source.part, begin, message);
      group_.send(std::as_bytes(message), writer);
    } else if (writes && (moves || !out.empty())) {
      const std::span<float> elements = in_place ? out.subspan(at, n) : std::span(message_).first(n);
      if (moves) {
        group_.receive(std::as_writable_bytes(elements), source.from);
      } else {
        copy_own(arena, source.part, begin, elements);
      }
      if (!in_place && !out.empty()) copy_to_places(runs, begin, elements, out);
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

void PieceStream::copy_own(std::size_t arena, std::size_t part, std::int64_t begin,
                           std::span<float> out) const {
  const auto& [owned, parts] = arenas_[arena];
  backend_.copy_to_host(std::as_writable_bytes(out),
                        parts[part].slice(begin - owned[part].begin, {std::ssize(out)}));
}

}  // namespace stagegpt
