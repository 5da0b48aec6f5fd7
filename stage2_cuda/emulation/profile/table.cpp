#include <algorithm>
#include <cstdio>

#include "common/base/error.h"
#include "stage2_cuda/emulation/profile/writers.h"

namespace stagegpt::gpu::emulation {
namespace {

// As std::printf(), to a string.
template <class... Values>
void print(std::string& out, const char* format, Values... values) {
  char line[512];
  std::snprintf(line, sizeof(line), format, values...);
  out += line;
}

double kilobytes(double bytes) { return bytes / 1e3; }
double kilobytes(Count bytes) { return kilobytes(static_cast<double>(bytes)); }
unsigned long long number(Count count) { return count; }

void add_kernels(std::string& out, const Summary& summary) {
  print(out, "%-58s %8s %10s %10s %10s %8s %8s %9s\n", "kernel", "launches", "KB, least", "KB, asked",
        "sectors", "of ideal", "lanes", "conflicts");
  for (const KernelSummary& kernel : summary.kernels) {
    const Traffic traffic = kernel.counts->traffic();
    print(out, "%-58.58s %8llu %10.1f %10.1f %10llu %7.1f%% %7.1f%% %9.2f\n", kernel.name.c_str(),
          number(kernel.counts->launches), kilobytes(traffic.distinct.all()),
          kilobytes(traffic.requested.all()), number(kernel.global_total.sectors),
          100 * sector_efficiency(kernel.global_total), 100 * active_lanes(kernel.global_total),
          conflict_factor(kernel.shared_total));
  }
}

void add_accesses(std::string& out, const KernelSummary& kernel) {
  for (const LineAccess& line : kernel.lines) {
    const AccessCounts& c = line.counts;
    print(out, "  %-54s %-6s %-6s %2u bytes %9llu requests %6.1f%% lanes %s\n", to_string(line.chain).c_str(),
          c.shared ? "shared" : "global", name_of(c.kind), c.bytes, number(c.requests), 100 * active_lanes(c),
          cost_of(c).c_str());
  }
}

void add_kernel(std::string& out, const KernelSummary& kernel) {
  const KernelCounts& counts = *kernel.counts;
  print(out, "\n%s\n", kernel.name.c_str());
  const Occupancy occupancy = occupancy_of(kernel);
  print(out, "  %llu launches, %llu blocks, the last ones of %u threads; %zu bytes of shared memory\n",
        number(counts.launches), number(counts.blocks), counts.block_threads, counts.shared_bytes);
  print(out, "  %u blocks on a multiprocessor at a time, limited by %s; ", occupancy.blocks, occupancy.limit);
  if (kernel.resources.registers == 0) {
    out += "registers are not known, and may allow fewer\n";
  } else {
    print(out, "%u registers a thread, %zu bytes spilled\n", kernel.resources.registers,
          kernel.resources.spill_bytes);
  }
  add_accesses(out, kernel);
  for (const auto& [key, call] : counts.calls) {
    print(out, "  %-54s %-20s %9llu calls\n", key.second.c_str(), key.first.c_str(), number(call.calls));
  }
  for (const auto& [argument, traffic] : counts.arguments) {
    const std::string name = argument == kNoArgument ? "other memory" : concat("argument ", argument);
    print(out, "  %-20s KB read: %.3f asked for, %.3f distinct; KB written: %.3f, %.3f\n", name.c_str(),
          kilobytes(traffic.requested.read), kilobytes(traffic.distinct.read),
          kilobytes(traffic.requested.written), kilobytes(traffic.distinct.written));
  }
}

void add_ops(std::string& out, const Profile& profile) {
  print(out, "\n%-30s %6s %12s %12s %12s %12s %8s\n", "op", "calls", "KB, budget", "KB, kernels",
        "KB, copies", "KB, library", "ratio");
  OpCounts sum;
  const auto row = [&](const char* name, const OpCounts& op) {
    print(out, "%-30s %6llu %12.1f %12.1f %12.1f %12.1f ", name, number(op.calls), kilobytes(op.budget),
          kilobytes(op.kernels.distinct.all()), kilobytes(op.moved.all()), kilobytes(op.products.all()));
    op.budget > 0 ? print(out, "%8.3f\n", op.counted() / op.budget) : print(out, "%8s\n", "");
  };
  for (const auto& [name, op] : profile.ops) {
    row(name.c_str(), op);
    sum.calls += op.calls;
    sum.budget += op.budget;
    sum.kernels += op.kernels;
    sum.moved += op.moved;
    sum.products += op.products;
  }
  row("all", sum);
}

void add_races(std::string& out, const std::vector<RaceSummary>& races) {
  print(out, "\nraces in global memory: %zu\n", races.size());
  for (const RaceSummary& summary : races) {
    const Race& race = *summary.race;
    out += concat("  kernel ", race.kernel, ", argument ", race.argument, ", byte ", race.byte, ": ",
                  name_of(race.first_kind), " in ", to_string(summary.first), " (", race.first_thread,
                  ") and ", name_of(race.second_kind), " in ", to_string(summary.second), " (",
                  race.second_thread, "), in no order; ", race.instances, " times\n");
  }
}

}  // namespace

std::string cost_of(const AccessCounts& c) {
  std::string out;
  const double requests = static_cast<double>(c.requests);
  if (c.shared) {
    print(out, "%6.2f wavefronts a request, ideal %.2f, worst %u-way",
          static_cast<double>(c.wavefronts) / requests, static_cast<double>(c.ideal_wavefronts) / requests,
          c.ways);
  } else {
    print(out, "%6.2f sectors a request, efficiency %.1f%%", static_cast<double>(c.sectors) / requests,
          100 * sector_efficiency(c));
  }
  return out;
}

std::string table_of(const Summary& summary) {
  std::string out;
  add_kernels(out, summary);
  if (!summary.profile->ops.empty()) add_ops(out, *summary.profile);
  add_races(out, summary.races);
  for (const KernelSummary& kernel : summary.kernels) add_kernel(out, kernel);
  return out;
}

}  // namespace stagegpt::gpu::emulation
