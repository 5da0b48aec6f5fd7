// block.json: the events of one block.
#include <algorithm>
#include <bit>
#include <map>
#include <set>

#include "common/base/json.h"
#include "stage2_cuda/emulation/profile/writers.h"
#include "stage2_cuda/emulation/vector_clock.h"

namespace stagegpt::gpu::emulation {
namespace {

Json json_of(Index index) { return {index.x, index.y, index.z}; }

LineChain chain_of(const BlockEvent& event, const Summary& summary) {
  if (event.type == BlockEvent::Type::access) return summary.lines.at(event.instruction);
  return {source_line(event.where.file_name(), static_cast<int>(event.where.line()))};
}

// The source lines of events, each written once.
class Places {
 public:
  std::size_t number_of(const LineChain& chain) {
    const auto [found, is_new] = numbers_.try_emplace(chain, numbers_.size());
    if (is_new) {
      places_.push_back(json_of(chain));
      lines_.insert(chain.begin(), chain.end());
    }
    return found->second;
  }
  const Json& places() const { return places_; }
  // The lines, and some around each.
  Json source() const {
    constexpr int kAround = 3;
    std::set<SourceLine> lines;
    for (const SourceLine& place : lines_) {
      for (const int line : {std::max(1, place.line - kAround), place.line, place.line + kAround}) {
        lines.insert({place.file, line});
      }
    }
    Json source = Json::array();
    for (const Excerpt& excerpt : excerpts_of(lines)) {
      source.push_back({{"file", excerpt.file}, {"first", excerpt.first}, {"lines", excerpt.lines}});
    }
    return source;
  }

 private:
  std::map<LineChain, std::size_t> numbers_;
  std::set<SourceLine> lines_;
  Json places_ = Json::array();
};

// The addresses of the lanes that take part, relative to `origin`: as a rule if they are regular.
void add_addresses(Json& event, const WarpAccess& access, std::uintptr_t origin) {
  std::vector<std::int64_t> addresses;
  for_lanes(access.mask, [&](unsigned lane) {
    addresses.push_back(static_cast<std::int64_t>(access.address[lane] - origin));
  });
  const std::int64_t stride = addresses.size() > 1 ? addresses[1] - addresses[0] : 0;
  for (std::size_t i = 1; i < addresses.size(); ++i) {
    if (addresses[i] - addresses[i - 1] == stride) continue;
    event["addresses"] = addresses;
    return;
  }
  event["first"] = addresses.front();
  event["stride"] = stride;
}

Json json_of(const BlockEvent& event, const BlockTrace& trace) {
  switch (event.type) {
    case BlockEvent::Type::barrier:
      return {{"kind", "barrier"}, {"call", event.call}};
    case BlockEvent::Type::warp_call: {
      Json json = {
          {"kind", "warp call"}, {"call", event.call}, {"warp", event.warp}, {"mask", event.access.mask}};
      if (std::string_view(event.call).starts_with("__shfl")) {
        Json lanes = Json::array();
        for_lanes(event.access.mask, [&](unsigned lane) { lanes.push_back(event.access.address[lane]); });
        json["from_lanes"] = std::move(lanes);
      }
      return json;
    }
    case BlockEvent::Type::access:
      break;
  }
  const AccessCounts& counts = event.counts;
  Json json = {{"kind", name_of(counts.kind)},
               {"memory", counts.shared ? "shared" : "global"},
               {"warp", event.warp},
               {"mask", event.access.mask},
               {"bytes", counts.bytes}};
  if (counts.shared) {
    add_addresses(json, event.access, 0);
    json["wavefronts"] = counts.wavefronts;
    json["ideal_wavefronts"] = counts.ideal_wavefronts;
    return json;
  }
  const auto lane = static_cast<std::size_t>(std::countr_zero(event.access.mask));
  const PointerArgument* const argument = argument_at(trace.arguments(), event.access.address[lane]);
  const auto origin = argument == nullptr ? 0 : reinterpret_cast<std::uintptr_t>(argument->address);
  json["argument"] = argument == nullptr ? Json() : Json(argument->number);
  add_addresses(json, event.access, origin);
  json["sectors"] = counts.sectors;
  json["ideal_sectors"] = counts.ideal_sectors;
  return json;
}

}  // namespace

Json json_of(const BlockTrace& trace, const Summary& summary) {
  constexpr std::uintptr_t kLineBytes = 128;
  const std::vector<BlockEvent> shown = trace.first_events();
  Places places;
  Json events = Json::array(), arrays = Json::array(), arguments = Json::array();
  for (const BlockEvent& event : shown) {
    Json json = {{"column", event.column}};
    json.update(json_of(event, trace));
    json["place"] = places.number_of(chain_of(event, summary));
    events.push_back(std::move(json));
  }
  for (const TracedArray& array : trace.arrays()) {
    arrays.push_back({{"name", array.name},
                      {"begin", array.begin},
                      {"element_bytes", array.element_bytes},
                      {"elements", array.elements}});
  }
  for (const PointerArgument& argument : trace.arguments()) {
    arguments.push_back({{"argument", argument.number},
                         {"in_line", reinterpret_cast<std::uintptr_t>(argument.address) % kLineBytes}});
  }
  return {{"kernel", trace.kernel()},
          {"launch", trace.choice().launch},
          {"block", trace.choice().block},
          {"block_index", json_of(trace.index())},
          {"grid", json_of(trace.grid())},
          {"block_shape", json_of(trace.block_shape())},
          {"events_total", trace.total_events()},
          {"events_shown", shown.size()},
          {"shared_arrays", std::move(arrays)},
          {"arguments", std::move(arguments)},
          {"places", places.places()},
          {"source", places.source()},
          {"events", std::move(events)}};
}

}  // namespace stagegpt::gpu::emulation
