// The state that a rank publishes to the watchdogs of its node: its phase, when it began, and whether it
// waits for others. It is in shared memory. One thread writes it; threads of other processes read it.
//
// The three fields must be read together: an old time with a new flag could make a healthy rank look hung.
// States are numbered. State n is written into buffer n mod 2, and then its number is published. A reader
// loads the number, copies that buffer, and loads the number again. If the number has not changed, the copy
// is consistent: the buffer is written again only for state n+2, after n+1 has been published. The words are
// stored with release and loaded with acquire, so a reader that sees a word of state n+2 also sees the number
// n+1. If the writer is stopped in the middle of a state, readers still get the previous one.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace stagegpt {

struct RankState {
  std::array<char, 24> phase{};  // padded with zeros; empty: not watched
  double since = 0;              // when the phase, or the wait in it, began: seconds of the steady clock
  bool waiting = false;          // for other ranks

  void set_phase(const char* name) {
    phase.fill(0);
    std::strncpy(phase.data(), name, phase.size() - 1);
  }
  bool watched() const { return phase[0] != 0; }
};

class WatchSlot {
 public:
  // Called by one thread only.
  void set(const RankState& state) {
    const std::uint32_t next = number_.load(std::memory_order_relaxed) + 1;
    Words words{};
    std::memcpy(words.data(), &state, sizeof state);
    Buffer& buffer = buffers_[next % 2];
    for (std::size_t i = 0; i < words.size(); ++i) buffer[i].store(words[i], std::memory_order_release);
    number_.store(next, std::memory_order_release);
  }

  // Called by any thread. It also sees the writer's memory writes before that state.
  RankState get() const {
    Words words;
    std::uint32_t number;
    do {
      number = number_.load(std::memory_order_acquire);
      const Buffer& buffer = buffers_[number % 2];
      for (std::size_t i = 0; i < words.size(); ++i) words[i] = buffer[i].load(std::memory_order_acquire);
    } while (number_.load(std::memory_order_relaxed) != number);
    RankState state;
    std::memcpy(static_cast<void*>(&state), words.data(), sizeof state);
    return state;
  }

 private:
  static constexpr std::size_t kWords = (sizeof(RankState) + 7) / 8;
  using Words = std::array<std::uint64_t, kWords>;
  using Buffer = std::array<std::atomic<std::uint64_t>, kWords>;
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "in shared memory");

  std::array<Buffer, 2> buffers_{};
  std::atomic<std::uint32_t> number_ = 0;  // the number of the newest state
};

}  // namespace stagegpt
