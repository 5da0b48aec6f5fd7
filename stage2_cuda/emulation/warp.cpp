// Collective calls of a warp's lanes, and the messages about deadlocks.
#include <cstring>
#include <iomanip>
#include <string_view>

#include "stage2_cuda/emulation/block.h"
#include "stage2_cuda/emulation/vector_clock.h"

namespace stagegpt::gpu::emulation {
namespace {

std::string hex(unsigned mask) {
  std::ostringstream out;
  out << "0x" << std::hex << std::setw(8) << std::setfill('0') << mask;
  return out.str();
}

}  // namespace

std::string to_string(Index index) { return concat('(', index.x, ',', index.y, ',', index.z, ')'); }

std::string to_string(const Where& where) {
  const std::string_view path = where.file_name();
  return concat(path.substr(path.find_last_of('/') + 1), ':', where.line());
}

bool same_line(const Where& a, const Where& b) {
  return a.line() == b.line() && a.column() == b.column() && std::strcmp(a.file_name(), b.file_name()) == 0;
}

std::string Block::described(const Thread& thread) const {
  return concat(described_launch(), ", thread ", to_string(thread.index), ": ");
}

std::string Block::described_launch() const {
  return concat("kernel ", launch_->kernel, ", block ", to_string(index_));
}

void Block::join(Thread& self, const char* call, unsigned mask, Where where) {
  if ((mask >> self.lane & 1U) == 0) {
    fail(self, "lane ", int{self.lane}, " calls ", call, " in ", to_string(where), " with the mask ",
         hex(mask), ", which does not contain this lane");
  }
  self.call = call;
  self.mask = mask;
  self.where = where;
  self.state = ThreadState::at_warp_call;
  warps_[self.warp].waiting |= 1U << self.lane;
}

bool Block::all_arrived(const Thread& self) const {
  if ((warps_[self.warp].waiting & self.mask) != self.mask) return false;
  bool all = true;
  for_lanes(self.mask, [&](unsigned lane) {
    const Thread& other = threads_[self.warp * kWarpSize + lane];
    all = all && other.mask == self.mask && same_place(other.where, self.where);
  });
  return all;
}

void Block::release(const Thread& self) {
  if (launch_observer != nullptr) launch_observer->at_warp_call(self);
  warps_[self.warp].waiting &= ~self.mask;
  for_lanes(self.mask,
            [&](unsigned lane) { threads_[self.warp * kWarpSize + lane].state = ThreadState::ready; });
  const unsigned others = self.mask & ~(1U << self.lane);
  ready_[self.warp] |= others;
  if (others != 0) ready_warps_ |= 1U << self.warp;
  threads_[self.number].state = ThreadState::running;
}

std::uint64_t Block::exchange(const char* call, unsigned mask, std::uint64_t value, unsigned source,
                              Where where) {
  Thread& self = *current_thread;
  Warp& warp = warps_[self.warp];
  join(self, call, mask, where);
  if ((mask >> source & 1U) == 0) {
    fail(self, "lane ", int{self.lane}, " reads from lane ", source, " in ", call, " in ", to_string(where),
         ", which is not in the mask ", hex(mask));
  }
  warp.value[self.lane] = value;
  warp.source[self.lane] = static_cast<std::uint8_t>(source);
  if (all_arrived(self)) {
    // Computed for all lanes now: a lane that continues may store a new value before another has read this
    // one.
    for_lanes(mask, [&](unsigned lane) {
      threads_[self.warp * kWarpSize + lane].result = warp.value[warp.source[lane]];
    });
    release(self);
  } else {
    wait(self);
  }
  return self.result;
}

unsigned Block::ballot(unsigned mask, bool value, Where where) {
  Thread& self = *current_thread;
  Warp& warp = warps_[self.warp];
  join(self, "__ballot_sync", mask, where);
  warp.value[self.lane] = value ? 1 : 0;
  if (all_arrived(self)) {
    unsigned result = 0;
    for_lanes(mask, [&](unsigned lane) { result |= static_cast<unsigned>(warp.value[lane]) << lane; });
    for_lanes(mask, [&](unsigned lane) { threads_[self.warp * kWarpSize + lane].result = result; });
    release(self);
  } else {
    wait(self);
  }
  return static_cast<unsigned>(self.result);
}

void Block::sync_warp(unsigned mask, Where where) {
  Thread& self = *current_thread;
  join(self, "__syncwarp", mask, where);
  if (all_arrived(self)) {
    pass_time(warps_[self.warp], mask, lanes_[self.warp]);
    barriers_.meet(self.warp * kWarpSize, mask);
    release(self);
  } else {
    wait(self);
  }
}

void Block::together(const char* call, void* record, WarpCall compute, Where where) {
  Thread& self = *current_thread;
  join(self, call, ~0U, where);
  warps_[self.warp].record[self.lane] = record;
  if (all_arrived(self)) {
    compute(warps_[self.warp].record);
    release(self);
  } else {
    wait(self);
  }
}

void Block::check_lanes(const Thread& waiting) const {
  for_lanes(waiting.mask, [&](unsigned lane) {
    const unsigned number = waiting.warp * kWarpSize + lane;
    const std::string call = concat(" waits in ", waiting.call, " in ", to_string(waiting.where),
                                    ", whose mask ", hex(waiting.mask), " contains lane ", lane);
    if (number >= size_) {
      throw KernelError(concat(described(waiting), call.substr(1), ", but the block has no such thread"));
    }
    const Thread& other = threads_[number];
    if (other.state == ThreadState::exited) {
      throw KernelError(concat(described(other), "lane ", lane, " has exited, but thread ",
                               to_string(waiting.index), call));
    }
    const bool elsewhere = other.state != ThreadState::at_warp_call || other.mask != waiting.mask ||
                           !same_place(other.where, waiting.where);
    if (elsewhere) {
      throw KernelError(concat(described(other), "lane ", lane, " waits in ", other.call, " in ",
                               to_string(other.where), ", but thread ", to_string(waiting.index), call));
    }
  });
}

void Block::report_deadlock() const {
  const Thread* exited = nullptr;
  for (unsigned i = 0; i < size_; ++i) {
    if (threads_[i].state == ThreadState::suspended) fail(threads_[i], barriers_.why_waits(threads_[i]));
  }
  for (unsigned i = 0; i < size_; ++i) {
    if (threads_[i].state == ThreadState::at_warp_call) check_lanes(threads_[i]);
    if (threads_[i].state == ThreadState::exited && exited == nullptr) exited = &threads_[i];
  }
  check(exited != nullptr && arrived_ > 0, described_launch(),
        ": no thread is ready, but none waits at a barrier");
  throw KernelError(concat(described(*exited), "has exited, but thread ", to_string(first_arrived_->index),
                           " waits in ", first_arrived_->call, " in ", to_string(first_arrived_->where),
                           " for all threads of the block"));
}

}  // namespace stagegpt::gpu::emulation
