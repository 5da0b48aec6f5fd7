#include "stage2_cuda/emulation/block.h"

#include <memory>
#include <utility>

namespace stagegpt::gpu::emulation {

thread_local constinit Thread* current_thread = nullptr;
thread_local constinit Block* current_block = nullptr;
constinit LaunchObserver* launch_observer = nullptr;

void need_capability(int least) {
  const int has = compute_capability();
  if (has >= least) return;
  fail("needs compute capability ", least / 10, '.', least % 10, ", and the emulated device has ", has / 10,
       '.', has % 10, " (STAGEGPT_EMULATOR_CAPABILITY)");
}

Block& Block::of_this_thread() {
  // On the heap: a thread_local Block would take space in every thread of the program.
  static thread_local const auto block = std::make_unique<Block>();
  return *block;
}

Block::Block() : fibers_([this] { work(); }) {}

void Block::set_up(const Launch& launch, Index block) {
  launch_ = &launch;
  index_ = block;
  const Index shape = launch.block;
  size_ = shape.x * shape.y * shape.z;
  const bool renumber = shape.x != shape_.x || shape.y != shape_.y || shape.z != shape_.z;
  shape_ = shape;
  for (unsigned i = 0; i < size_; ++i) {
    Thread& thread = threads_[i];
    thread.state = ThreadState::ready;
    thread.fiber = nullptr;
    if (!renumber) continue;
    thread.index = index_of(i, shape);
    thread.number = static_cast<std::uint16_t>(i);
    thread.warp = static_cast<std::uint8_t>(i / kWarpSize);
    thread.lane = static_cast<std::uint8_t>(i % kWarpSize);
  }
  const unsigned warps = (size_ + kWarpSize - 1) / kWarpSize;
  for (unsigned i = 0; i < warps; ++i) {
    warps_[i].waiting = warps_[i].time = warps_[i].full_time = 0;
    warps_[i].partial = false;
    warps_[i].known.clear();
    lanes_[i] = ~0U;
  }
  if (size_ % kWarpSize != 0) lanes_[warps - 1] = (1U << size_ % kWarpSize) - 1;
  all_are_ready();
  exited_ = arrived_ = 0;
  abandoning_ = false;
  if (launch.order.order == Order::random) {
    std::seed_seq seed = {launch.order.seed, launch.number, number_of(block, launch.grid)};
    random_.seed(seed);
  }
  to_start_ = nullptr;
  shared_.begin_block(launch.shared_bytes);
  barriers_.begin_block();
  tiles_.begin_block();
  if (launch_observer != nullptr) launch_observer->begin_block(*this);
}

void Block::all_are_ready() {
  const unsigned warps = (size_ + kWarpSize - 1) / kWarpSize;
  ready_ = lanes_;
  ready_warps_ = warps == kWarpSize ? ~0U : (1U << warps) - 1;
}

void Block::run(const Launch& launch, Index block) {
  set_up(launch, block);
  Fiber& first = fibers_.take_idle();
  current_block = this;
  fibers_.switch_to(first);
  if (error_) {
    abandon_waiting();
    copies_.forget_all();
  }
  products_.forget_all();
  if (launch_observer != nullptr) launch_observer->end_block();
  current_block = nullptr;
  current_thread = nullptr;
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void Block::work() {
  Thread* next = to_start_ != nullptr ? std::exchange(to_start_, nullptr) : take_ready();
  while (next != nullptr && next->fiber == nullptr && run_thread(*next)) next = take_ready();
  if (next == nullptr) {
    try {
      if (exited_ != size_) report_deadlock();
      barriers_.check_copies_have_landed();
      products_.check_steps();
    } catch (...) {
      error_ = std::current_exception();
    }
  }
  fibers_.mark_idle();
  fibers_.switch_to(next != nullptr && next->fiber != nullptr ? *next->fiber : fibers_.origin());
}

bool Block::run_thread(Thread& thread) {
  current_thread = &thread;
  try {
    launch_->run_thread(launch_->arguments);
    if (copies_.has_copies(thread)) fail(thread, "exits before cp_async_wait_all, with copies under way");
    products_.check_none(thread);
  } catch (const Abandoned&) {
    return false;
  } catch (const KernelError&) {
    error_ = std::current_exception();
    return false;
  } catch (const std::exception& error) {
    error_ = std::make_exception_ptr(KernelError(concat(described(thread), error.what())));
    return false;
  } catch (...) {
    error_ =
        std::make_exception_ptr(KernelError(concat(described(thread), "an exception of an unknown type")));
    return false;
  }
  thread.state = ThreadState::exited;
  ++exited_;
  return true;
}

void Block::abandon_waiting() {
  abandoning_ = true;
  for (unsigned i = 0; i < size_; ++i) {
    if (threads_[i].fiber != nullptr) fibers_.switch_to(*threads_[i].fiber);
  }
}

void Block::suspend(const char* call, Where where) {
  Thread& self = *current_thread;
  self.call = call;
  self.where = where;
  self.state = ThreadState::suspended;
  wait(self);
}

void Block::resume(Thread& thread) {
  thread.state = ThreadState::ready;
  ready_[thread.warp] |= 1U << thread.lane;
  ready_warps_ |= 1U << thread.warp;
}

bool Block::copies_land_at_once() {
  switch (launch_->order.order) {
    case Order::forward:
      return true;
    case Order::reverse:
      return false;
    case Order::random:
      break;
  }
  return random_() / 2 % 2 == 0;
}

bool Block::barrier(const char* call, bool predicate, Where where) {
  Thread& self = *current_thread;
  if (arrived_ == 0) {
    first_arrived_ = &self;
    any_ = false;
  } else if (!same_place(first_arrived_->where, where)) {
    fail(self, "calls ", call, " in ", to_string(where), ", while thread ", to_string(first_arrived_->index),
         " waits in ", first_arrived_->call, " in ", to_string(first_arrived_->where));
  }
  any_ = any_ || predicate;
  self.call = call;
  self.where = where;
  self.state = ThreadState::at_barrier;
  if (++arrived_ < size_) {
    wait(self);
    return result_;
  }
  arrived_ = 0;
  result_ = any_;
  shared_.pass_syncthreads();
  barriers_.meet_all();
  if (launch_observer != nullptr) launch_observer->at_barrier(call, where);
  all_are_ready();
  ready_[self.warp] &= ~(1U << self.lane);
  if (ready_[self.warp] == 0) ready_warps_ &= ~(1U << self.warp);
  self.state = ThreadState::running;
  return result_;
}

}  // namespace stagegpt::gpu::emulation
