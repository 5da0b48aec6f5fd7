// Threads of the CPU backend. The parts into which work is divided depend only on its size, not on the number
// of threads, so that a sum over parts has the same bits with any number of threads. In shares() they depend
// on the threads too: it is only for results that do not depend on the parts.
#pragma once

#include <algorithm>
#include <cstdint>

namespace stagegpt {

// Elements per part, in a pass over memory.
inline constexpr std::int64_t kElementGrain = 16384;

class Parallel {
 public:
  explicit Parallel(int threads) : threads_(threads) {}
  int threads() const { return threads_; }

  // Calls f(i) for every i in [0, n).
  template <class F>
  void each(std::int64_t n, const F& f) const {
    if (n <= 1 || threads_ == 1) {
      for (std::int64_t i = 0; i < n; ++i) f(i);
      return;
    }
#pragma omp parallel for schedule(static) num_threads(threads_)
    for (std::int64_t i = 0; i < n; ++i) f(i);
  }

  // Calls f(begin, end) for consecutive parts of [0, n) of `grain` elements; the last may be shorter.
  template <class F>
  void ranges(std::int64_t n, std::int64_t grain, const F& f) const {
    each((n + grain - 1) / grain,
         [&](std::int64_t part) { f(part * grain, std::min(n, (part + 1) * grain)); });
  }

  // Calls f(begin, end) for consecutive parts of [0, n), at most one for each thread, of whole cache lines of
  // floats.
  template <class F>
  void shares(std::int64_t n, const F& f) const {
    constexpr std::int64_t kLine = 16;
    const std::int64_t lines = (n + kLine - 1) / kLine;
    ranges(n, std::max<std::int64_t>(1, (lines + threads_ - 1) / threads_) * kLine, f);
  }

 private:
  int threads_;
};

}  // namespace stagegpt
