// The core of byte-pair encoding: merges one piece of text into tokens.
//
// A piece starts as one token per byte. In each round, of all neighbouring pairs that have a merge, the pair
// with the earliest merge is replaced by its result (the leftmost one if it occurs several times). This is
// repeated until no pair has a merge.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "common/data/tokenizers/pair_map.h"

namespace stagegpt {

struct Merge {
  std::int32_t left = 0, right = 0, result = 0;
};

class BpeMerger {
 public:
  BpeMerger() { byte_ids_.fill(kNone); }

  void set_byte(unsigned char byte, std::int32_t id) { byte_ids_[byte] = id; }
  // A byte that has no token, if there is one. merge() requires a token for each byte of its piece.
  std::optional<int> missing_byte() const;
  // Adds a merge after the earlier ones. Returns false and does nothing if its pair already has a merge.
  bool add(const Merge& merge);

  // Appends the tokens of `piece`. Thread-safe.
  void merge(std::string_view piece, std::vector<std::int32_t>& ids) const;

 private:
  static constexpr std::int32_t kNone = -1;

  struct Rule {
    std::int32_t rank = 0, result = 0;
  };

  const Rule* rule(std::int32_t left, std::int32_t right) const {
    return rules_.find(PairMap<Rule>::key(left, right));
  }
  // Searches all pairs for the next merge. Quadratic, but fastest for short pieces.
  void merge_short(std::string_view piece, std::vector<std::int32_t>& ids) const;
  // Keeps the candidates in a heap: O(n log n).
  void merge_long(std::string_view piece, std::vector<std::int32_t>& ids) const;

  std::array<std::int32_t, 256> byte_ids_{};
  PairMap<Rule> rules_;
};

}  // namespace stagegpt
