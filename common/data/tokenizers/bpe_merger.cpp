#include "common/data/tokenizers/bpe_merger.h"

#include <algorithm>
#include <queue>

namespace stagegpt {

std::optional<int> BpeMerger::missing_byte() const {
  const auto missing = std::ranges::find(byte_ids_, kNone);
  if (missing == byte_ids_.end()) return std::nullopt;
  return static_cast<int>(missing - byte_ids_.begin());
}

bool BpeMerger::add(const Merge& merge) {
  const auto rank = static_cast<std::int32_t>(rules_.size());
  const auto [rule, is_new] = rules_.emplace(PairMap<Rule>::key(merge.left, merge.right));
  if (is_new) rule = {rank, merge.result};
  return is_new;
}

void BpeMerger::merge(std::string_view piece, std::vector<std::int32_t>& ids) const {
  constexpr std::size_t kShort = 64;
  if (piece.size() <= kShort) {
    merge_short(piece, ids);
  } else {
    merge_long(piece, ids);
  }
}

void BpeMerger::merge_short(std::string_view piece, std::vector<std::int32_t>& ids) const {
  const std::size_t first = ids.size();
  for (const char byte : piece) ids.push_back(byte_ids_[static_cast<unsigned char>(byte)]);
  while (true) {
    const Rule* best = nullptr;
    std::size_t at = 0;
    for (std::size_t i = first; i + 1 < ids.size(); ++i) {
      const Rule* candidate = rule(ids[i], ids[i + 1]);
      if (candidate && (!best || candidate->rank < best->rank)) {
        best = candidate;
        at = i;
      }
    }
    if (!best) return;
    ids[at] = best->result;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

void BpeMerger::merge_long(std::string_view piece, std::vector<std::int32_t>& ids) const {
  struct Symbol {
    std::int32_t id, previous, next;  // positions, or kNone; a symbol merged into another has no id
  };
  struct Candidate {
    std::int32_t rank, at, left, right;
    bool operator<(const Candidate& other) const {  // priority_queue returns the largest first
      return rank != other.rank ? rank > other.rank : at > other.at;
    }
  };
  const auto n = static_cast<std::int32_t>(piece.size());
  std::vector<Symbol> symbols;
  symbols.reserve(piece.size());
  for (std::int32_t i = 0; i < n; ++i) {
    const auto byte = static_cast<unsigned char>(piece[static_cast<std::size_t>(i)]);
    symbols.push_back({byte_ids_[byte], i - 1, i + 1 < n ? i + 1 : kNone});
  }
  const auto symbol = [&](std::int32_t at) -> Symbol& { return symbols[static_cast<std::size_t>(at)]; };

  std::vector<Candidate> storage;
  // If the symbol at `at` can be merged with the next symbol, passes that candidate to use().
  const auto consider = [&](std::int32_t at, auto&& use) {
    if (at == kNone || symbol(at).next == kNone) return;
    const std::int32_t left = symbol(at).id, right = symbol(symbol(at).next).id;
    if (const Rule* found = rule(left, right)) use(Candidate{found->rank, at, left, right});
  };
  for (std::int32_t i = 0; i < n; ++i) consider(i, [&](const Candidate& c) { storage.push_back(c); });
  std::priority_queue<Candidate> queue(std::less<Candidate>(), std::move(storage));

  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    // Candidates stay in the queue when one of their symbols is merged with another symbol. They are outdated
    // then, and are recognised by the changed ids.
    Symbol& left = symbol(best.at);
    if (left.id != best.left || left.next == kNone || symbol(left.next).id != best.right) continue;
    Symbol& right = symbol(left.next);
    left.id = rule(best.left, best.right)->result;
    right.id = kNone;
    left.next = right.next;
    if (left.next != kNone) symbol(left.next).previous = best.at;
    consider(left.previous, [&](const Candidate& c) { queue.push(c); });
    consider(best.at, [&](const Candidate& c) { queue.push(c); });
  }
  for (std::int32_t at = 0; at != kNone; at = symbol(at).next) ids.push_back(symbol(at).id);
}

}  // namespace stagegpt
