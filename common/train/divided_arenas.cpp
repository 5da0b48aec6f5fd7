#include "common/train/divided_arenas.h"

#include <algorithm>

#include "common/comm/agreement.h"

namespace stagegpt {

DividedArenas::DividedArenas(RankGroup& group, Backend& backend, const ArenaParts& owned,
                             std::vector<std::vector<Tensor>> parts)
    : group_(group),
      backend_(backend),
      ranges_(owned.size()),
      owned_(gather(group, owned)),
      parts_(std::move(parts)) {
  // Allocates before rank 0 sends requests, so that all ranks can agree on a lack of memory.
  agree(group_, [&] {
    if (!group_.is_root()) sent_.resize(static_cast<std::size_t>(std::min(kElements, total_size(owned))));
  });
}

void DividedArenas::on_root(const std::function<void()>& body) const {
  stagegpt::on_root(group_, body, [this](const RankGroup::Request& request) { send(request); });
}

const ArenaRange& DividedArenas::own(std::size_t i) const {
  return owned_[static_cast<std::size_t>(group_.rank()) * ranges_ + i];
}

void DividedArenas::copy_own(std::size_t arena, std::size_t i, std::int64_t begin,
                             std::span<float> out) const {
  backend_.copy_to_host(std::as_writable_bytes(out),
                        parts_[arena][i].slice(begin - own(i).begin, {std::ssize(out)}));
}

void DividedArenas::read(std::size_t arena, std::int64_t begin, std::span<float> out) const {
  while (!out.empty()) {
    const auto owner = std::ranges::find_if(
        owned_, [&](const ArenaRange& range) { return range.begin <= begin && begin < range.end; });
    check(owner != owned_.end(), "divided arena: no rank owns element ", begin);
    const auto index = static_cast<std::size_t>(owner - owned_.begin());
    const int rank = static_cast<int>(index / ranges_);
    std::int64_t size = std::min(std::ssize(out), owner->end - begin);
    if (rank != 0) size = std::min(size, kElements);
    const std::span<float> piece = out.first(static_cast<std::size_t>(size));
    if (rank == 0) {
      copy_own(arena, index, begin, piece);
    } else {
      group_.ask_others({static_cast<std::int64_t>(arena), begin, begin + size});
      group_.receive(std::as_writable_bytes(piece), rank);
    }
    begin += size;
    out = out.subspan(piece.size());
  }
}

void DividedArenas::send(const RankGroup::Request& request) const {
  const auto [arena, begin, end] = request;
  for (std::size_t i = 0; i < ranges_; ++i) {
    if (begin < own(i).begin || end > own(i).end) continue;  // owned by another rank, or in another range
    const std::span<float> piece = std::span(sent_).first(static_cast<std::size_t>(end - begin));
    copy_own(static_cast<std::size_t>(arena), i, begin, piece);
    group_.send(std::as_bytes(piece), 0);
  }
}

ParameterValues DividedArenas::values(const ParameterTable& table, std::size_t arena) const {
  return [this, &table, arena](std::size_t i, std::int64_t begin, std::span<float> out) {
    read(arena, table[i].offset + begin, out);
  };
}

}  // namespace stagegpt
