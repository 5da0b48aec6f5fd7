#include "common/checkpoint/piece_stream.h"

#include <algorithm>
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
                         const std::vector<OwnedArena>& arenas)
    : group_(group), backend_(backend), layout_(std::move(layout)), arenas_(arenas) {
  for (const OwnedArena& arena : arenas_) sources_.push_back(sources_of(group_, arena.owned));
  agree(group_, [&] {
    if (group_.size() > 1) message_.resize(kElements);
  });
}

PieceStream::Sources PieceStream::sources_of(RankGroup& group, ArenaParts owned) {
  const std::size_t parts = std::ranges::max(gather(group, owned.size()));
  owned.resize(parts);
  const ArenaParts all = gather(group, owned);
  Sources sources;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].size() > 0)
      sources.try_emplace(all[i].begin, Source{static_cast<int>(i / parts), i % parts, all[i].end});
  }
  return sources;
}

void PieceStream::run(const std::function<void()>& body) {
  agree(group_, [&] {
    if (!group_.is_root()) return serve();
    const auto end = [&] { from_root(group_, Request{.is_end = true}); };
    try {
      body();
    } catch (...) {
      end();
      throw;
    }
    end();
  });
}

ParameterValues PieceStream::values(std::size_t arena) {
  return [this, arena](std::size_t i, std::int64_t begin, std::span<float> out) {
    transfer(from_root(group_, Request{false, arena, {i, begin, begin + std::ssize(out)}}), out);
  };
}

void PieceStream::serve() {
  while (true) {
    const auto request = from_root(group_, Request());
    if (request.is_end) return;
    transfer(request, {});
  }
}

void PieceStream::transfer(const Request& request, std::span<float> out) {
  group_.beat();
  const std::vector<PlacedRun> runs = layout_(request.piece);
  for (auto first = runs.begin(); first != runs.end();) {
    auto end = first + 1;
    while (end != runs.end() && end->begin == (end - 1)->begin + (end - 1)->size) ++end;
    transfer(request.arena, {first, end}, out);
    first = end;
  }
}

void PieceStream::transfer(std::size_t arena, std::span<const PlacedRun> runs, std::span<float> out) {
  const std::int64_t first = runs.front().begin, end = runs.back().begin + runs.back().size;
  const bool in_place = runs.size() == 1;  // several runs are one message, and then copied to their places
  for (std::int64_t begin = first; begin < end;) {
    const auto& [from, part, end_of_part] = source_of(arena, begin);
    std::int64_t size = std::min(end, end_of_part) - begin;
    if (from != 0 || !in_place) size = std::min(size, kElements);
    const auto at = static_cast<std::size_t>(runs.front().at + begin - first),
               n = static_cast<std::size_t>(size);
    if (group_.is_root()) {
      const std::span<float> elements = in_place ? out.subspan(at, n) : std::span(message_).first(n);
      if (from == 0) {
        copy_own(arena, part, begin, elements);
      } else {
        group_.receive(std::as_writable_bytes(elements), from);
      }
      if (!in_place) copy_to_places(runs, begin, elements, out);
    } else if (from == group_.rank()) {
      const std::span<float> message = std::span(message_).first(n);
      copy_own(arena, part, begin, message);
      group_.send(std::as_bytes(message), 0);
    }
    begin += size;
  }
}

const PieceStream::Source& PieceStream::source_of(std::size_t arena, std::int64_t begin) const {
  const Sources& sources = sources_[arena];
  const auto behind = sources.upper_bound(begin);
  check(behind != sources.begin() && begin < std::prev(behind)->second.end,
        "piece stream: no rank owns element ", begin);
  return std::prev(behind)->second;
}

void PieceStream::copy_own(std::size_t arena, std::size_t part, std::int64_t begin,
                           std::span<float> out) const {
  const auto& [owned, parts] = arenas_[arena];
  backend_.copy_to_host(std::as_writable_bytes(out),
                        parts[part].slice(begin - owned[part].begin, {std::ssize(out)}));
}

}  // namespace stagegpt
