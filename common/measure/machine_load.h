// Processor time that other programs used during a measurement.
//
// It is the busy time of the cores (/proc/stat) minus the processor time of this program. In a virtual
// machine it includes the time that the host gave to others ("steal"). In a container /proc/stat shows the
// whole host. So the load is only known if this program may use the listed cores without a quota.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "common/base/json_fwd.h"
#include "common/comm/rank_group.h"

namespace stagegpt {

struct MachineLoad {
  std::string host = {};    // empty if there is only one host
  double others_share = 0;  // share of `cores` that other programs used during `seconds`, from 0 to 1
  int cores = 0;            // that all ranks on this host may use
  int threads = 0;          // of all ranks on this host
  double seconds = 0;       // length of the measurement

  // Share of the cores needed by our threads that other programs used: with 2 threads on 2 cores it equals
  // others_share; with 8 threads on 16 cores it is above 0 if other programs use more than 8 cores.
  double missing_share() const;
  // The missing_share() from which on measured times are unreliable.
  static constexpr double kBusy = 0.1;
  bool busy() const { return missing_share() >= kBusy; }
};

// The counters of one rank; all ranks read them over the same time.
struct LoadReading {
  char host[256] = {};
  bool known = false;
  double seconds = 0;
  double used = 0;  // processor seconds of all programs on `cores`
  double own = 0;   // processor seconds of this rank, on all of its threads
  int cores = 0;    // of all ranks on this host
  int threads = 0;  // of this rank
};

// The load of the host with the largest missing_share(). Empty if a rank has no reading, if the time was too
// short for the kernel's counters (resolution: 10 ms), or if these do not include our own time.
std::optional<MachineLoad> busiest_load(std::span<const LoadReading> readings);

// Busy seconds of `cores`, from the text of /proc/stat. Empty if one of them is missing there.
std::optional<double> parse_used_seconds(std::string_view proc_stat, const std::set<int>& cores,
                                         double ticks_per_second);

// Measures from its construction to read(). The constructor and read() are collective calls.
class LoadMeter {
 public:
  // `threads`: number of threads of this rank.
  LoadMeter(RankGroup& group, int threads);
  std::optional<MachineLoad> read() const;

 private:
  struct Counters {
    double seconds = 0, used = 0, own = 0;
    bool known = false;
  };
  Counters counters() const;

  RankGroup& group_;
  int threads_;
  std::set<int> cores_;  // of all ranks on this host; empty if unknown
  Counters begin_;
};

// "the machine was busy: …", without a newline; empty if it was not busy, or if the load is unknown.
std::string busy_line(const std::optional<MachineLoad>& load);
// The field "busy" in the JSON of a measurement; null if the load is unknown.
Json busy_json(const std::optional<MachineLoad>& load);

}  // namespace stagegpt
