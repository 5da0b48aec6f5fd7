#include "stage2_cuda/emulation/profile/block_trace.h"

#include <algorithm>
#include <bit>
#include <regex>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "stage2_cuda/emulation/vector_clock.h"

namespace stagegpt::gpu::emulation {
namespace {

// The order of a segment's events: each lane's own order, and of those that it leaves open, the lowest lane's
// event first. So diverged lanes follow each other, as on a GPU. `lanes` has the places of each lane's
// events.
std::vector<std::size_t> merged(const std::array<std::vector<std::size_t>, kWarpSize>& lanes,
                                const std::vector<BlockEvent>& events) {
  std::array<std::size_t, kWarpSize> next = {};
  std::vector<bool> done(events.size());
  std::vector<std::size_t> order;
  const auto skip_done = [&](unsigned lane) {
    while (next[lane] < lanes[lane].size() && done[lanes[lane][next[lane]]]) ++next[lane];
    return next[lane] < lanes[lane].size();
  };
  const auto is_next_of_all = [&](std::size_t event) {
    bool all = true;
    for_lanes(events[event].access.mask,
              [&](unsigned lane) { all = all && skip_done(lane) && lanes[lane][next[lane]] == event; });
    return all;
  };
  while (true) {
    constexpr std::size_t kNone = ~std::size_t{0};
    std::size_t chosen = kNone, first = kNone;
    for (unsigned lane = 0; lane < kWarpSize && chosen == kNone; ++lane) {
      if (!skip_done(lane)) continue;
      const std::size_t event = lanes[lane][next[lane]];
      if (first == kNone) first = event;
      if (is_next_of_all(event)) chosen = event;
    }
    // Lanes that execute instructions in different orders leave no event that is next for all of its lanes.
    if (chosen == kNone) chosen = first;
    if (chosen == kNone) return order;
    done[chosen] = true;
    order.push_back(chosen);
  }
}

// "1 block (0)", "3 blocks (0 to 2)".
std::string numbers(std::uint64_t count, std::string_view word) {
  if (count == 1) return concat("1 ", word, " (0)");
  return concat(count, ' ', word, word.ends_with('h') ? "es" : "s", " (0 to ", count - 1, ')');
}

std::string kernels_of(const Profile& profile) {
  std::string names;
  for (const auto& [name, counts] : profile.kernels) names += concat(names.empty() ? "" : "; ", name);
  return names.empty() ? "none" : names;
}

}  // namespace

bool BlockChoice::names(std::string_view launched) const {
  return kernel == launched || kernel == launched.substr(0, launched.find('<'));
}

BlockChoice parsed_block_choice(const std::string& text) {
  // A kernel's name may contain colons, but neither begins nor ends with one.
  static const std::regex kChoice("([^:]|[^:].*?[^:])(?::([0-9]{1,18}))?(?::([0-9]{1,18}))?");
  std::smatch parts;
  if (!std::regex_match(text, parts, kChoice)) {
    user_error("--emulator-block: expected KERNEL[:LAUNCH[:BLOCK]], got \"", text, "\"");
  }
  const auto number = [&](std::size_t part) -> std::uint64_t {
    return parts[part].matched ? std::stoull(parts[part]) : 0;
  };
  return {.kernel = parts[1].str(), .launch = number(2), .block = number(3)};
}

const PointerArgument* argument_at(const std::vector<PointerArgument>& arguments, std::uintptr_t address) {
  const auto after = std::ranges::upper_bound(arguments, address, {}, [](const PointerArgument& argument) {
    return reinterpret_cast<std::uintptr_t>(argument.address);
  });
  if (after == arguments.begin()) return nullptr;
  // The first of several arguments with one address.
  return &*std::ranges::lower_bound(arguments.begin(), after, std::prev(after)->address, {},
                                    &PointerArgument::address);
}

void BlockTrace::begin_launch(const Launch& launch, const std::vector<PointerArgument>& arguments) {
  in_launch_ = choice_.names(launch.kernel) && launches_++ == choice_.launch;
  if (!in_launch_) return;
  const std::uint64_t blocks = std::uint64_t{launch.grid.x} * launch.grid.y * launch.grid.z;
  if (choice_.block >= blocks) {
    user_error("--emulator-block: launch ", choice_.launch, " of ", launch.kernel, " has ",
               numbers(blocks, "block"), ", got block ", choice_.block);
  }
  kernel_ = launch.kernel;
  grid_ = launch.grid;
  shape_ = launch.block;
  arguments_ = arguments;
}

bool BlockTrace::begin_block(const Block& block, std::uint64_t number) {
  if (!in_launch_ || number != choice_.block) return false;
  found_ = true;
  index_ = block.index();
  return true;
}

void BlockTrace::end_block(const Block& block) {
  const auto* const begin = static_cast<const char*>(block.shared().begin());
  for (const SharedSpan& array : block.shared().arrays()) {
    arrays_.push_back({array.declaration->name,
                       static_cast<std::size_t>(static_cast<const char*>(array.data) - begin),
                       array.declaration->element_bytes, array.count});
  }
  std::ranges::stable_sort(events_, [](const BlockEvent& a, const BlockEvent& b) {
    return std::pair(a.column, a.warp) < std::pair(b.column, b.warp);
  });
}

void BlockTrace::add_lane(const Thread& self, Instruction instruction) {
  Segment& segment = segments_[self.warp];
  segment.lanes[self.lane].push_back({instruction, segment.executions[self.lane][instruction]++});
}

void BlockTrace::add_request(unsigned warp, Instruction instruction, const AccessCounts& counts,
                             const WarpAccess& access) {
  Segment& segment = segments_[warp];
  segment.requests[instruction].push_back(segment.events.size());
  segment.events.push_back({.warp = warp, .access = access, .instruction = instruction, .counts = counts});
}

void BlockTrace::end_segment(unsigned warp) {
  Segment& segment = segments_[warp];
  std::array<std::vector<std::size_t>, kWarpSize> lanes;
  for (unsigned lane = 0; lane < kWarpSize; ++lane) {
    for (const Step& step : segment.lanes[lane]) {
      lanes[lane].push_back(
          step.instruction == nullptr ? step.number : segment.requests.at(step.instruction).at(step.number));
    }
  }
  for (const std::size_t place : merged(lanes, segment.events)) append(std::move(segment.events[place]));
  segment = {};
}

void BlockTrace::add_warp_call(const Block& block, const Thread& self) {
  BlockEvent event{.type = BlockEvent::Type::warp_call,
                   .warp = self.warp,
                   .access = {.mask = self.mask},
                   .call = self.call,
                   .where = self.where};
  if (std::string_view(self.call).starts_with("__shfl")) {
    for_lanes(self.mask,
              [&](unsigned lane) { event.access.address[lane] = block.warp(self.warp).source[lane]; });
  }
  if (self.mask == block.lanes(self.warp)) return append(std::move(event));
  Segment& segment = segments_[self.warp];
  for_lanes(self.mask, [&](unsigned lane) {
    segment.lanes[lane].push_back({nullptr, segment.events.size()});
  });
  segment.events.push_back(std::move(event));
}

void BlockTrace::append(BlockEvent event) {
  ++total_;
  event.column = phase_begin_ + since_barrier_[event.warp]++;
  // Of each warp at least as many as are shown of all, as long as the phases before do not suffice.
  if (phase_begin_ <= most_events_ && since_barrier_[event.warp] <= most_events_) {
    events_.push_back(std::move(event));
  }
}

void BlockTrace::add_barrier(const char* call, Where where) {
  BlockEvent barrier{.type = BlockEvent::Type::barrier, .call = call, .where = where};
  barrier.column = phase_begin_ + *std::ranges::max_element(since_barrier_);
  ++total_;
  phase_begin_ = barrier.column + 1;
  since_barrier_ = {};
  if (barrier.column <= most_events_) events_.push_back(std::move(barrier));
}

void BlockTrace::check_found(const Profile& profile) const {
  if (found_) return;
  if (launches_ == 0) {
    user_error("--emulator-block: no kernel \"", choice_.kernel, "\" was launched; launched were ",
               kernels_of(profile));
  }
  user_error("--emulator-block: ", choice_.kernel, " had ", numbers(launches_, "launch"), ", got launch ",
             choice_.launch);
}

std::vector<BlockEvent> BlockTrace::first_events() const {
  if (events_.size() <= most_events_) return events_;
  // Whole columns.
  std::size_t count = most_events_;
  while (count > 0 && events_[count].column == events_[count - 1].column) --count;
  return {events_.begin(), events_.begin() + static_cast<std::ptrdiff_t>(count)};
}

}  // namespace stagegpt::gpu::emulation
