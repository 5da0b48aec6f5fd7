#include "stage2_cuda/emulation/profile/profiler.h"

#include <algorithm>
#include <bit>

#include "common/base/error.h"
#include "stage2_cuda/emulation/device_memory.h"
#include "stage2_cuda/emulation/settings.h"

namespace stagegpt::gpu::emulation {

std::size_t WarpAccesses::number_of(Instruction instruction, const AccessCounts& of_lane) {
  if (instruction == last_) return last_number_;
  const auto [found, is_new] = numbers_.try_emplace(instruction, sites_.size());
  if (is_new)
    sites_.push_back({.instruction = instruction, .of_lane = of_lane, .executions = {}, .accesses = {}});
  last_ = instruction;
  last_number_ = found->second;
  return last_number_;
}

void WarpAccesses::add(unsigned lane, Instruction instruction, std::uintptr_t address,
                       const AccessCounts& of_lane) {
  const std::size_t number = number_of(instruction, of_lane);
  Site& site = sites_[number];
  if (site.accesses.empty()) used_.push_back(number);
  const unsigned execution = site.executions[lane]++;
  if (execution == site.accesses.size()) site.accesses.push_back({.bytes = of_lane.bytes});
  WarpAccess& access = site.accesses[execution];
  access.mask |= 1U << lane;
  access.address[lane] = address;
}

constinit Profiler* profiler = nullptr;

Profiler::Profiler() {
  check(profiler == nullptr && launch_observer == nullptr, "a second profiler");
  set_threads(1);
  set_stream_time(StreamTime::at_once);  // so that a launch runs within its op
  profiler = this;
  launch_observer = this;
  const auto device = device_memory().view_region();
  device_begin_ = reinterpret_cast<std::uintptr_t>(device.data());
  device_bytes_ = device.size();
}

Profiler::~Profiler() {
  profiler = nullptr;
  launch_observer = nullptr;
}

void Profiler::begin_launch(const Launch& launch) {
  launch_ = &launch;
  kernel_ = &profile_.kernels[launch.kernel];
  ++kernel_->launches;
  arguments_ = launch.pointers(launch.arguments);
  std::ranges::stable_sort(arguments_, {}, &PointerArgument::address);
  shadow_.begin_launch();
  if (trace_) trace_->begin_launch(launch, arguments_);
}

void Profiler::end_launch() {
  const Bytes before = kernel_->traffic().distinct;
  // Argument k has the addresses up to the next one; what lies before the first one has no argument.
  std::uintptr_t begin = device_begin_;
  std::size_t number = kNoArgument;
  const auto count = [&](std::uintptr_t end) {
    const Bytes distinct = shadow_.distinct(begin, end);
    if (distinct.all() > 0) kernel_->arguments[number].distinct += distinct;
  };
  for (const PointerArgument& argument : arguments_) {
    const auto address = reinterpret_cast<std::uintptr_t>(argument.address);
    if (address == begin && number != kNoArgument) continue;  // the same array as another argument
    if (address != begin) count(address);
    begin = address;
    number = argument.number;
  }
  count(device_begin_ + device_bytes_);
  if (op_ != nullptr) {
    ++op_->launches;
    const Bytes distinct = kernel_->traffic().distinct;
    op_->kernels.distinct += {distinct.read - before.read, distinct.written - before.written};
  }
  for (WarpAccesses& warp : warps_) warp.forget_instructions();
  launch_ = nullptr;
  kernel_ = nullptr;
}

void Profiler::begin_block(const Block& block) {
  block_ = &block;
  shared_begin_ = reinterpret_cast<std::uintptr_t>(block.shared().begin());
  ++kernel_->blocks;
  kernel_->block_threads = block.threads();
  const std::uint64_t number = number_of(block.index(), block.launch().grid);
  shadow_.begin_block(static_cast<std::uint32_t>(number));
  tracing_ = trace_ && trace_->begin_block(block, number);
}

void Profiler::end_block() {
  for (unsigned warp = 0; warp * kWarpSize < block_->threads(); ++warp) finish(warp);
  kernel_->shared_bytes = std::max(kernel_->shared_bytes, block_->shared().used_bytes());
  if (tracing_) trace_->end_block(*block_);
  tracing_ = false;
  block_ = nullptr;
}

void Profiler::at_barrier(const char* call, Where where) {
  for (unsigned warp = 0; warp * kWarpSize < block_->threads(); ++warp) finish(warp);
  shadow_.pass_barrier();
  if (tracing_) trace_->add_barrier(call, where);
  count_call(call, where, block_->threads());
}

void Profiler::at_warp_call(const Thread& self) {
  if (self.mask == block_->lanes(self.warp)) finish(self.warp);
  if (tracing_) trace_->add_warp_call(*block_, self);
  count_call(self.call, self.where, static_cast<unsigned>(std::popcount(self.mask)));
}

void Profiler::count_call(const char* call, Where where, unsigned lanes) {
  CallCounts& counts = kernel_->calls[{call, to_string(where)}];
  ++counts.calls;
  counts.lanes += lanes;
}

void Profiler::finish(unsigned warp) {
  const auto existing = static_cast<unsigned>(std::popcount(block_->lanes(warp)));
  warps_[warp].finish([&](Instruction instruction, const AccessCounts& of_lane, const WarpAccess& access) {
    AccessCounts request = of_lane;
    request.add(access, existing);
    kernel_->add(instruction, request);
    if (tracing_) trace_->add_request(warp, instruction, request, access);
  });
  if (tracing_) trace_->end_segment(warp);
}

void Profiler::access(const void* memory, std::size_t bytes, Kind kind, Instruction caller) {
  if (current_thread == nullptr || block_ == nullptr) return;
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  const Thread& self = *current_thread;
  AccessCounts of_lane{.kind = kind, .bytes = static_cast<unsigned>(bytes)};
  if (address - shared_begin_ < kMostSharedBytes) {
    of_lane.shared = true;
    warps_[self.warp].add(self.lane, caller, address - shared_begin_, of_lane);
    if (tracing_) trace_->add_lane(self, caller);
    return;
  }
  if (address - device_begin_ >= device_bytes_) return;  // the thread's own variables
  warps_[self.warp].add(self.lane, caller, address, of_lane);
  if (tracing_) trace_->add_lane(self, caller);
  add_global(address, of_lane, caller);
}

// Bytes of an argument, and races.
void Profiler::add_global(std::uintptr_t address, const AccessCounts& of_lane, Instruction caller) {
  const PointerArgument* const argument = argument_at(arguments_, address);
  Bytes requested;
  if (of_lane.kind != Kind::write) requested.read = of_lane.bytes;
  if (of_lane.kind != Kind::read) requested.written = of_lane.bytes;
  kernel_->arguments[argument == nullptr ? kNoArgument : argument->number].requested += requested;
  if (op_ != nullptr) op_->kernels.requested += requested;
  if (const Stamp* race = shadow_.access(address, of_lane.bytes, of_lane.kind, caller)) {
    report_race(*race, address, of_lane.kind, caller);
  }
}

void Profiler::fence() {
  if (block_ != nullptr) shadow_.pass_fence();
}

std::string Profiler::name_of(std::uint32_t block, std::uint16_t thread) const {
  return concat("block ", to_string(index_of(block, launch_->grid)), ", thread ",
                to_string(index_of(thread, launch_->block)));
}

void Profiler::report_race(const Stamp& first, std::uintptr_t address, Kind kind, Instruction caller) {
  const auto found = std::ranges::find_if(profile_.races, [&](const Race& race) {
    return race.kernel == launch_->kernel && race.first == first.instruction && race.second == caller;
  });
  if (found != profile_.races.end()) {
    ++found->instances;
    return;
  }
  Race race{.kernel = launch_->kernel,
            .first = first.instruction,
            .second = caller,
            .first_kind = first.kind,
            .second_kind = kind,
            .first_thread = name_of(first.block, first.thread),
            .second_thread = name_of(shadow_.block(), current_thread->number),
            .instances = 1};
  if (const PointerArgument* const argument = argument_at(arguments_, address)) {
    race.argument = argument->number;
    race.byte = address - reinterpret_cast<std::uintptr_t>(argument->address);
  }
  profile_.races.push_back(race);
}

void Profiler::copies_to_shared(const void* to, std::size_t bytes, const void* caller) {
  access(to, bytes, Kind::write, caller);
}

// Neighbouring bytes are one request, which no warp makes.
void Profiler::reads_for_copy(const void* from, std::size_t bytes, const void* caller) {
  const auto address = reinterpret_cast<std::uintptr_t>(from);
  AccessCounts request{.bytes = static_cast<unsigned>(bytes)};
  request.add(WarpAccess{.mask = 1, .bytes = request.bytes, .address = {address}}, 1);
  kernel_->add(caller, request);
  add_global(address, request, caller);
}

void Profiler::moves(Mover mover, std::size_t bytes_read, std::size_t bytes_written) {
  if (op_ == nullptr) return;
  Bytes& bytes = mover == Mover::library ? op_->products : op_->moved;
  bytes += {bytes_read, bytes_written};
}

}  // namespace stagegpt::gpu::emulation
