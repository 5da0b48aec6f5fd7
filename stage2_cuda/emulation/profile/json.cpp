#include "common/base/json.h"

#include "stage2_cuda/emulation/profile/writers.h"

namespace stagegpt::gpu::emulation {
namespace {

Json json_of(const LineAccess& access) {
  const AccessCounts& counts = access.counts;
  Json row = {{"lines", json_of(access.chain)}, {"memory", counts.shared ? "shared" : "global"},
              {"kind", name_of(counts.kind)},   {"bytes", counts.bytes},
              {"requests", counts.requests},    {"active_lanes", active_lanes(counts)}};
  if (counts.shared) {
    row.update({{"wavefronts", counts.wavefronts},
                {"ideal_wavefronts", counts.ideal_wavefronts},
                {"worst_ways", counts.ways}});
  } else {
    row.update({{"sectors", counts.sectors},
                {"ideal_sectors", counts.ideal_sectors},
                {"sector_efficiency", sector_efficiency(counts)}});
  }
  return row;
}

Json json_of(const Bytes& bytes) { return {{"read", bytes.read}, {"written", bytes.written}}; }

Json json_of(const KernelSummary& kernel) {
  Json lines = Json::array(), calls = Json::array(), arguments = Json::array();
  for (const LineAccess& line : kernel.lines) lines.push_back(json_of(line));
  for (const auto& [key, call] : kernel.counts->calls) {
    calls.push_back(
        {{"call", key.first}, {"line", key.second}, {"calls", call.calls}, {"lanes", call.lanes}});
  }
  for (const auto& [number, traffic] : kernel.counts->arguments) {
    arguments.push_back({{"argument", number == kNoArgument ? Json() : Json(number)},
                         {"requested", json_of(traffic.requested)},
                         {"distinct", json_of(traffic.distinct)}});
  }
  const bool known = kernel.resources.registers > 0;
  const Occupancy occupancy = occupancy_of(kernel);
  return {{"name", kernel.name},
          {"launches", kernel.counts->launches},
          {"blocks", kernel.counts->blocks},
          {"block_threads", kernel.counts->block_threads},
          {"shared_bytes", kernel.counts->shared_bytes},
          {"registers", known ? Json(kernel.resources.registers) : Json()},
          {"spill_bytes", known ? Json(kernel.resources.spill_bytes) : Json()},
          {"resident_blocks", occupancy.blocks},
          {"limited_by", occupancy.limit},
          {"accesses", lines},
          {"calls", calls},
          {"arrays", arguments}};
}

Json json_of(const RaceSummary& summary) {
  const Race& race = *summary.race;
  const auto side = [](const LineChain& chain, Kind kind, const std::string& thread) {
    return Json{{"lines", json_of(chain)}, {"kind", name_of(kind)}, {"thread", thread}};
  };
  return {{"kernel", race.kernel},
          {"first", side(summary.first, race.first_kind, race.first_thread)},
          {"second", side(summary.second, race.second_kind, race.second_thread)},
          {"argument", race.argument == kNoArgument ? Json() : Json(race.argument)},
          {"byte", race.byte},
          {"instances", race.instances}};
}

// The counts of a kernel, or of all of them, without source lines.
struct Totals {
  Count launches = 0;
  AccessCounts global, shared;
  Traffic traffic;

  void add(const KernelSummary& kernel) {
    launches += kernel.counts->launches;
    global.add(kernel.global_total);
    shared.add(kernel.shared_total);
    traffic += kernel.counts->traffic();
  }
};

Json json_of(const Totals& totals) {
  return {{"launches", totals.launches},
          {"requests", totals.global.requests},
          {"sectors", totals.global.sectors},
          {"ideal_sectors", totals.global.ideal_sectors},
          {"sector_efficiency", sector_efficiency(totals.global)},
          {"shared_requests", totals.shared.requests},
          {"wavefronts", totals.shared.wavefronts},
          {"ideal_wavefronts", totals.shared.ideal_wavefronts},
          {"bank_conflicts", totals.shared.wavefronts - totals.shared.ideal_wavefronts},
          {"bytes_asked", totals.traffic.requested.all()},
          {"bytes_least", totals.traffic.distinct.all()}};
}

}  // namespace

Json json_of(const LineChain& chain) {
  Json lines = Json::array();
  for (const SourceLine& line : chain) lines.push_back({{"file", line.file}, {"line", line.line}});
  return lines;
}

Json totals_of(const Summary& summary) {
  Json kernels = Json::object();
  Totals all;
  for (const KernelSummary& kernel : summary.kernels) {
    Totals own;
    own.add(kernel);
    all.add(kernel);
    kernels[kernel.name] = json_of(own);
  }
  return {{"kernels", kernels}, {"all", json_of(all)}, {"races", summary.races.size()}};
}

Json json_of(const Summary& summary) {
  Json kernels = Json::array(), ops = Json::array(), races = Json::array();
  for (const KernelSummary& kernel : summary.kernels) kernels.push_back(json_of(kernel));
  for (const auto& [name, op] : summary.profile->ops) {
    ops.push_back(
        {{"name", name},
         {"calls", op.calls},
         {"launches", op.launches},
         {"budget_bytes", op.budget},
         {"counted_bytes", op.counted()},
         {"kernels",
          {{"requested", json_of(op.kernels.requested)}, {"distinct", json_of(op.kernels.distinct)}}},
         {"copies_and_fills", json_of(op.moved)},
         {"library_products", json_of(op.products)}});
  }
  for (const RaceSummary& race : summary.races) races.push_back(json_of(race));
  return {{"kernels", kernels}, {"ops", ops}, {"races", races}};
}

}  // namespace stagegpt::gpu::emulation
