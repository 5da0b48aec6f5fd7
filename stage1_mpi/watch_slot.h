// What a rank tells the watchdogs of its node: its phase, since when, and whether it waits for others. One
// thread writes it, threads of other processes read it, in memory that they share.
//
// The three belong together: an old time beside a new flag would accuse a healthy rank. States are numbered,
// and state n is written into buffer n mod 2 before its number is published. A reader takes the number,
// copies that buffer, and takes the number again. Where the number is the same, the copy is whole: the buffer
// is written again only for state n+2, after n+1 has been published. Its words are stored with release and
// loaded with acquire, so a reader that has seen one of them sees the number n+1 as well. A writer that is
// stopped in the middle of a state leaves the one before it to be read.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace stagegpt {

struct RankState {
  std::array<char, 24> phase{};  // ends in zeros; empty: nobody watches
  double since = 0;      // when the phase began, or the wait in it: seconds of a clock that never jumps
  bool waiting = false;  // for other ranks

  void set_phase(const char* name) {
    phase.fill(0);
    std::strncpy(phase.data(), name, phase.size() - 1);
  }
  bool watched() const { return phase[0] != 0; }
};

class WatchSlot {
 public:
  // By one thread.
  void set(const RankState& state) {
    const std::uint32_t next = number_.load(std::memory_order_relaxed) + 1;
    Words words{};
    std::memcpy(words.data(), &state, sizeof state);
    Buffer& buffer = buffers_[next % 2];
    for (std::size_t i = 0; i < words.size(); ++i) buffer[i].store(words[i], std::memory_order_release);
    number_.store(next, std::memory_order_release);
  }

  // By any thread. It sees, too, what the writer did before that state.
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
  std::atomic<std::uint32_t> number_ = 0;  // of the newest state
};

}  // namespace stagegpt
