// How often each piece of a corpus occurs: what vocabularies are made from.
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

// Memory is bounded: when kMaxPieces different ones, or kMaxBytes of them, have been seen, new ones are left
// out, and those that are known go on being counted.
class PieceCounts {
 public:
  static constexpr std::size_t kMaxPieces = 1'000'000, kMaxBytes = std::size_t{12} << 20;

  void add(std::string_view piece, std::int64_t count = 1);
  // Those of a later part of the corpus.
  void add(const PieceCounts& later);

  // By their bytes. The views hold until the next call of add().
  std::vector<PieceCount> sorted() const;
  // Whether pieces were left out.
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
