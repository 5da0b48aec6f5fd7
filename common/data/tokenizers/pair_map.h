// A hash map from pairs of token ids: open addressing, linear probing, no removal.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace stagegpt {

template <class Value>
class PairMap {
 public:
  using Key = std::uint64_t;

  static Key key(std::int32_t left, std::int32_t right) {
    return static_cast<Key>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
  }

  // Null if the key is not in the map.
  const Value* find(Key key) const {
    const Slot& slot = slots_[place(key)];
    return slot.key == key ? &slot.value : nullptr;
  }

  // The value of the key, inserted if it is new, and whether it was inserted. References are valid until the
  // next call.
  std::pair<Value&, bool> emplace(Key key) {
    if (2 * (size_ + 1) > slots_.size()) grow();
    Slot& slot = slots_[place(key)];
    const bool made = slot.key != key;
    if (made) {
      slot.key = key;
      ++size_;
    }
    return {slot.value, made};
  }

  std::size_t size() const { return size_; }

 private:
  static constexpr Key kEmpty = ~Key{0};  // the key of the ids (-1, -1)

  struct Slot {
    Key key = kEmpty;
    Value value{};
  };

  // The slot of `key`, or the empty slot in which it would be inserted.
  std::size_t place(Key key) const {
    constexpr Key kGoldenRatio = 0x9E3779B97F4A7C15;  // Knuth's multiplicative hash
    const std::size_t mask = slots_.size() - 1;
    std::size_t at = (key * kGoldenRatio) >> shift_;
    while (slots_[at].key != key && slots_[at].key != kEmpty) at = (at + 1) & mask;
    return at;
  }

  void grow() {
    std::vector<Slot> old(2 * slots_.size());
    old.swap(slots_);
    --shift_;
    for (Slot& slot : old) {
      if (slot.key != kEmpty) slots_[place(slot.key)] = std::move(slot);
    }
  }

  std::size_t size_ = 0;
  int shift_ = 56;  // 64 - log2(slots)
  std::vector<Slot> slots_ = std::vector<Slot>(std::size_t{1} << (64 - 56));
};

}  // namespace stagegpt
