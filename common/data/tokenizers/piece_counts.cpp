#include "common/data/tokenizers/piece_counts.h"

#include <algorithm>

namespace stagegpt {

void PieceCounts::add(std::string_view piece, std::int64_t count) {
  const auto known = counts_.find(piece);
  if (known != counts_.end()) {
    known->second += count;
  } else if (counts_.size() < kMaxPieces && bytes_ + piece.size() <= kMaxBytes) {
    counts_.emplace(piece, count);
    bytes_ += piece.size();
  } else {
    truncated_ = true;
  }
}

void PieceCounts::add(const PieceCounts& later) {
  // In sorted order, so that the pieces that still fit do not depend on the order in the hash table.
  for (const auto& [piece, count] : later.sorted()) add(piece, count);
  truncated_ |= later.truncated_;
}

std::vector<PieceCount> PieceCounts::sorted() const {
  std::vector<PieceCount> pieces;
  pieces.reserve(counts_.size());
  for (const auto& [piece, count] : counts_) pieces.push_back({piece, count});
  std::ranges::sort(pieces, {}, &PieceCount::piece);
  return pieces;
}

}  // namespace stagegpt
