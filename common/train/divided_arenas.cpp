#include "common/train/divided_arenas.h"

#include <algorithm>

#include "common/comm/agreement.h"

namespace stagegpt {

DividedArenas::DividedArenas(RankGroup& group, Backend& backend, ArenaRange owned, std::vector<Tensor> parts)
    : group_(group), backend_(backend), owned_(gather(group, owned)), parts_(std::move(parts)) {
  // Allocates before rank 0 sends requests, so that all ranks can agree on a lack of memory.
  agree(group_, [&] {
    if (!group_.is_root()) sent_.resize(static_cast<std::size_t>(std::min(kElements, owned.size())));
  });
}

void DividedArenas::on_root(const std::function<void()>& body) const {
  stagegpt::on_root(group_, body, [this](const RankGroup::Request& request) { send(request); });
}

void DividedArenas::copy_own(std::size_t arena, std::int64_t begin, std::span<float> out) const {
  const ArenaRange& owned = owned_[static_cast<std::size_t>(group_.rank())];
  backend_.copy_to_host(std::as_writable_bytes(out),
                        parts_[arena].slice(begin - owned.begin, {std::ssize(out)}));
}

void DividedArenas::read(std::size_t arena, std::int64_t begin, std::span<float> out) const {
  while (!out.empty()) {
    const auto owner = std::ranges::find_if(
        owned_, [&](const ArenaRange& range) { return range.begin <= begin && begin < range.end; });
    check(owner != owned_.end(), "divided arena: no rank owns element ", begin);
    const int rank = static_cast<int>(owner - owned_.begin());
    std::int64_t size = std::min(std::ssize(out), owner->end - begin);
    if (rank != 0) size = std::min(size, kElements);
    const std::span<float> piece = out.first(static_cast<std::size_t>(size));
    if (rank == 0) {
      copy_own(arena, begin, piece);
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
  const ArenaRange& owned = owned_[static_cast<std::size_t>(group_.rank())];
  if (begin < owned.begin || end > owned.end) return;  // owned by another rank
  const std::span<float> piece = std::span(sent_).first(static_cast<std::size_t>(end - begin));
  copy_own(static_cast<std::size_t>(arena), begin, piece);
  group_.send(std::as_bytes(piece), 0);
}

ParameterValues DividedArenas::values(const ParameterTable& table, std::size_t arena) const {
  return [this, &table, arena](std::size_t i, std::int64_t begin, std::span<float> out) {
    read(arena, table[i].offset + begin, out);
  };
}

}  // namespace stagegpt
