// Counts how often each piece of a corpus occurs. Vocabularies are made from these counts.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace stagegpt {

struct PieceCount {
  std::string_view piece;
  std::int64_t count = 0;
};

// Memory is bounded: after kMaxPieces different pieces, or kMaxBytes in total, new pieces are ignored and
// only known pieces are counted.
class PieceCounts {
 public:
  static constexpr std::size_t kMaxPieces = 1'000'000, kMaxBytes = std::size_t{12} << 20;

  void add(std::string_view piece, std::int64_t count = 1);
  // Adds the counts of a later part of the corpus.
  void add(const PieceCounts& later);

  // All pieces, sorted by bytes. The views are valid until the next call of add().
  std::vector<PieceCount> sorted() const;
  // Whether pieces were ignored.
  bool truncated() const { return truncated_; }

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view piece) const { return std::hash<std::string_view>()(piece); }
  };

  std::unordered_map<std::string, std::int64_t, Hash, std::equal_to<>> counts_;
  std::size_t bytes_ = 0;
  bool truncated_ = false;
};

}  // namespace stagegpt
