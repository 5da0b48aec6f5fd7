#include "stage2_cuda/emulation/barriers.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "stage2_cuda/emulation/block.h"
#include "stage2_cuda/emulation/vector_clock.h"

namespace stagegpt::gpu::emulation {
namespace {

// The upper half of the state of an initialised barrier; the lower half is its number.
constexpr std::uint64_t kInitialised = 0xBA221E25;

std::string place(std::ptrdiff_t offset, Where made) {
  return concat("the barrier at byte ", offset, " of shared memory (initialised in ", to_string(made), ')');
}

}  // namespace

void Barriers::begin_block() {
  barriers_.clear();
  for (Named& named : named_) named = {};
}

void Barriers::init(std::uint64_t& state, int arrivals, Where where) {
  if (arrivals < 1) fail("Barrier::init in ", to_string(where), " with ", arrivals, " arrivals");
  const auto offset =
      reinterpret_cast<const char*>(&state) - static_cast<const char*>(current_block->shared().begin());
  state = kInitialised << 32 | barriers_.size();
  barriers_.push_back({.offset = offset,
                       .made = where,
                       .maker = current_thread->number,
                       .arrivals = arrivals,
                       .missing = arrivals,
                       .seen = std::vector<std::uint32_t>(current_block->threads())});
}

void Barriers::fence_init() {
  for (MBarrier& barrier : barriers_) {
    if (barrier.maker != current_thread->number || std::exchange(barrier.fenced, true)) continue;
    barrier.epoch = current_block->shared().epoch();
    barrier.time = current_block->warp(current_thread->warp).time;
  }
}

Barriers::MBarrier& Barriers::of(std::uint64_t state, const char* call, Where where) {
  const auto number = static_cast<std::uint32_t>(state);
  if (state >> 32 != kInitialised || number >= barriers_.size()) {
    fail(call, " in ", to_string(where), " of a barrier that is not initialised");
  }
  MBarrier& barrier = barriers_[number];
  const auto refuse = [&](const char* why) {
    fail(call, " in ", to_string(where), " of ", place(barrier.offset, barrier.made), ": thread ",
         to_string(current_block->thread(barrier.maker).index), ", which initialised it, ", why);
  };
  if (!barrier.fenced) refuse("has not called fence_barrier_init() since");
  if (barrier.epoch == current_block->shared().epoch() &&
      !in_order(static_cast<std::uint16_t>(barrier.maker), barrier.time))
    refuse("and this one have met at no barrier since its fence_barrier_init()");
  return barrier;
}

void Barriers::arrive(std::uint64_t& state, int bytes, const char* call, Where where) {
  MBarrier& barrier = of(state, call, where);
  if (barrier.missing == 0) {
    fail(call, " in ", to_string(where), ": ", place(barrier.offset, barrier.made), " has all ",
         barrier.arrivals, " arrivals of phase ", barrier.phase, " already");
  }
  --barrier.missing;
  barrier.expected += bytes;
  barrier.arrived.add_running_thread();
  end_phase_if_complete(barrier);
}

CopyPhase Barriers::begin_copy(std::uint64_t& state, std::int64_t bytes, std::function<void()> land_copy,
                               Where where) {
  MBarrier& barrier = of(state, "a copy", where);
  if (barrier.begun + bytes > barrier.expected) {
    fail("starts a copy of ", bytes, " bytes in ", to_string(where), ", but in phase ", barrier.phase, ' ',
         place(barrier.offset, barrier.made), " expects ", barrier.expected, " bytes, and ", barrier.begun,
         " are under way or have landed");
  }
  barrier.begun += bytes;
  const CopyPhase phase = {static_cast<std::uint32_t>(state), barrier.phase};
  barrier.copies.push_back({bytes, std::move(land_copy)});
  // Nobody would let it land later if threads wait already.
  if (!barrier.waiters.empty() || current_block->copies_land_at_once()) land(barrier);
  return phase;
}

void Barriers::land(MBarrier& barrier) {
  for (const Copy& copy : std::exchange(barrier.copies, {})) {
    copy.land();
    barrier.landed += copy.bytes;
  }
  end_phase_if_complete(barrier);
}

void Barriers::end_phase_if_complete(MBarrier& barrier) {
  if (barrier.missing != 0 || barrier.landed != barrier.expected) return;
  ++barrier.phase;
  barrier.missing = barrier.arrivals;
  barrier.expected = barrier.landed = barrier.begun = 0;
  barrier.ended.join(barrier.arrived);
  barrier.arrived.clear();
  std::erase_if(barrier.waiters, [&](const Waiter& waiter) {
    if ((barrier.phase & 1U) == waiter.parity) return false;
    leave(barrier, waiter.thread);
    current_block->resume(current_block->thread(waiter.thread));
    return true;
  });
}

void Barriers::wait(std::uint64_t& state, unsigned parity, Where where) {
  MBarrier& barrier = of(state, "Barrier::wait", where);
  const unsigned thread = current_thread->number;
  if (!barrier.copies.empty()) land(barrier);
  if ((barrier.phase & 1U) != (parity & 1U)) {
    leave(barrier, thread);
    return;
  }
  barrier.waiters.push_back({thread, parity & 1U});
  current_block->suspend("Barrier::wait", where);
}

void Barriers::leave(MBarrier& barrier, unsigned thread) {
  barrier.seen[thread] = barrier.phase;
  std::uint32_t& known = barrier.known[thread / kWarpSize];
  if (known == barrier.phase) return;
  known = barrier.phase;
  current_block->warp(thread / kWarpSize).known.join(barrier.ended);
}

bool Barriers::has_seen(const CopyPhase& copy) const {
  return barriers_[copy.barrier].seen[current_thread->number] > copy.phase;
}

void Barriers::meet(unsigned first, unsigned mask) {
  for (MBarrier& barrier : barriers_) {
    std::uint32_t seen = 0;
    for_lanes(mask, [&](unsigned i) { seen = std::max(seen, barrier.seen[first + i]); });
    for_lanes(mask, [&](unsigned i) { barrier.seen[first + i] = seen; });
  }
}

void Barriers::meet_all() {
  for (MBarrier& barrier : barriers_) std::ranges::fill(barrier.seen, std::ranges::max(barrier.seen));
}

void Barriers::named(int id, int threads, Where where) {
  if (id < 1 || id > 15 || threads < 1 || threads % static_cast<int>(kWarpSize) != 0) {
    fail("named_barrier in ", to_string(where), " with id ", id, " and ", threads,
         " threads, expected an id from 1 to 15 and whole warps");
  }
  Named& barrier = named_[static_cast<std::size_t>(id)];
  if (barrier.arrived.empty()) {
    barrier.threads = threads;
    barrier.where = where;
  } else if (barrier.threads != threads) {
    fail("named_barrier ", id, " in ", to_string(where), " of ", threads, " threads, of which thread ",
         to_string(current_block->thread(barrier.arrived[0]).index), " expects ", barrier.threads);
  }
  barrier.arrived.push_back(current_thread->number);
  barrier.clock.add_running_thread();
  if (static_cast<int>(barrier.arrived.size()) < threads) {
    current_block->suspend("named_barrier", where);
    return;
  }
  const std::vector<unsigned> all = std::exchange(barrier.arrived, {});
  for (MBarrier& each : barriers_) {
    std::uint32_t seen = 0;
    for (const unsigned thread : all) seen = std::max(seen, each.seen[thread]);
    for (const unsigned thread : all) each.seen[thread] = seen;
  }
  const VectorClock clock = std::exchange(barrier.clock, {});
  for (const unsigned thread : all) {
    if (thread % kWarpSize == 0) current_block->warp(thread / kWarpSize).known.join(clock);
    if (thread != current_thread->number) current_block->resume(current_block->thread(thread));
  }
}

std::string Barriers::why_waits(const Thread& thread) const {
  for (const MBarrier& barrier : barriers_) {
    for (const Waiter& waiter : barrier.waiters) {
      if (waiter.thread != thread.number) continue;
      return concat("waits in ", thread.call, " in ", to_string(thread.where), " for phase ", barrier.phase,
                    " of ", place(barrier.offset, barrier.made), ", which lacks ", barrier.missing, " of ",
                    barrier.arrivals, " arrivals and ", barrier.expected - barrier.landed, " of ",
                    barrier.expected, " bytes");
    }
  }
  for (std::size_t id = 0; id < named_.size(); ++id) {
    const Named& barrier = named_[id];
    if (std::ranges::find(barrier.arrived, thread.number) == barrier.arrived.end()) continue;
    return concat("waits in named_barrier ", id, " in ", to_string(thread.where), ", where ",
                  barrier.arrived.size(), " of ", barrier.threads, " threads have arrived");
  }
  return "";
}

void Barriers::check_copies_have_landed() const {
  for (const MBarrier& barrier : barriers_) {
    if (barrier.copies.empty()) continue;
    fail("the block ends, but a copy is under way to ", place(barrier.offset, barrier.made),
         ", for which no thread has waited");
  }
}

void AsyncCopies::begin(const SharedSpan& array, std::int64_t i,
                        const std::array<std::byte, kCopyBytes>& bytes) {
  const auto count = static_cast<std::int64_t>(kCopyBytes / array.declaration->element_bytes);
  for (std::int64_t j = 0; j < count; ++j) current_block->shared().begin_copy(array, i + j);
  of_thread_[current_thread->number].push_back({array, i, bytes});
  if (launch_observer != nullptr) {
    const void* const to = static_cast<const std::byte*>(array.data) +
                           static_cast<std::size_t>(i) * array.declaration->element_bytes;
    launch_observer->copies_to_shared(to, kCopyBytes, __builtin_return_address(0));
  }
}

void AsyncCopies::wait() {
  std::vector<Copy>& copies = of_thread_[current_thread->number];
  for (const Copy& copy : copies) {
    const std::size_t bytes = copy.array.declaration->element_bytes;
    for (std::size_t j = 0; j < kCopyBytes / bytes; ++j) {
      current_block->shared().end_copy(copy.array, copy.i + static_cast<std::int64_t>(j));
    }
    std::memcpy(static_cast<std::byte*>(copy.array.data) + static_cast<std::size_t>(copy.i) * bytes,
                copy.bytes.data(), kCopyBytes);
  }
  copies.clear();
}

void AsyncCopies::forget_all() {
  for (std::vector<Copy>& copies : of_thread_) copies.clear();
}

}  // namespace stagegpt::gpu::emulation
