// The inner part of byte-pair encoding: one piece of text, merged.
//
// A piece begins as one token a byte. Of all neighbours that a merge is known for, those of the first merge
// become one token (from left to right where there are several), until there are none left.
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
  // A byte without a token, which merge() must not meet.
  std::optional<int> missing_byte() const;
  // The merge that comes after those added so far. False, and nothing done, where its pair has one already.
  bool add(const Merge& merge);

  // Appends the tokens of `piece`. Several threads may call it at once.
  void merge(std::string_view piece, std::vector<std::int32_t>& ids) const;

 private:
  static constexpr std::int32_t kNone = -1;

  struct Rule {
    std::int32_t rank = 0, result = 0;
  };

  const Rule* rule(std::int32_t left, std::int32_t right) const {
    return rules_.find(PairMap<Rule>::key(left, right));
  }
  // Searches all neighbours for the next merge: quadratic, and the fastest while there are few.
  void merge_short(std::string_view piece, std::vector<std::int32_t>& ids) const;
  // Keeps the candidates in a heap: n log n.
  void merge_long(std::string_view piece, std::vector<std::int32_t>& ids) const;

  std::array<std::int32_t, 256> byte_ids_{};
  PairMap<Rule> rules_;
};

}  // namespace stagegpt
