// One thread changes a slot's state as fast as possible, and others read it. Every state that is read must
// have been written as a whole, and must not be older than a state read before. The program is built with
// ThreadSanitizer if available, which also checks the memory order: after reading a state, the writer's
// earlier writes are visible.
#include <atomic>
#include <cstdio>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "stage1_mpi/watch_slot.h"

namespace {

using stagegpt::RankState;

constexpr int kStates = 200'000, kReaders = 2;

// A state whose fields all encode the number n. All bytes of the phase but the last are the same letter.
RankState numbered(int n) {
  RankState state;
  state.phase.fill(static_cast<char>('a' + n % 26));
  state.phase.back() = 0;
  state.since = n;
  state.waiting = n % 2 == 1;
  return state;
}

bool is_whole(const RankState& state) {
  const RankState expected = numbered(static_cast<int>(state.since));
  return state.phase == expected.phase && state.waiting == expected.waiting;
}

struct Shared {
  stagegpt::WatchSlot slot;
  std::vector<int> done_before = std::vector<int>(kStates + 1);  // written before each state is set
  std::atomic<bool> failed = false;
};

void watch(Shared& shared) {
  for (int last = 0; last < kStates && !shared.failed;) {
    const RankState state = shared.slot.get();
    const int n = static_cast<int>(state.since);
    const bool good = is_whole(state) && n >= last && shared.done_before[static_cast<std::size_t>(n)] == n;
    if (!good && !shared.failed.exchange(true)) {
      std::fprintf(stderr, "state %d after %d: phase %s, %s\n", n, last, state.phase.data(),
                   state.waiting ? "waiting" : "working");
    }
    last = n;
  }
}

}  // namespace

int main() {
  Shared shared;
  shared.slot.set(numbered(0));
  std::vector<std::thread> readers;
  for (int i = 0; i < kReaders; ++i) readers.emplace_back(watch, std::ref(shared));
  for (int n = 1; n <= kStates; ++n) {
    shared.done_before[static_cast<std::size_t>(n)] = n;
    shared.slot.set(numbered(n));
  }
  for (std::thread& reader : readers) reader.join();
  return shared.failed ? 1 : 0;
}
