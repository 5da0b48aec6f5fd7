// How much other programs had of the processors while something was measured.
//
// The kernel counts for each processor how long it has worked, whoever for, and for each process how long it
// has computed: the difference is what others have had. Of a virtual machine that includes what its host gave
// to others ("steal"). In a container /proc/stat shows all of the host: that is right as long as we may use
// the processors that it lists in full, else nothing is known.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "common/base/json.h"
#include "common/comm/rank_group.h"

namespace stagegpt {

struct MachineLoad {
  std::string host = {};    // named where there are several
  double others_share = 0;  // what other programs used of `cores` over `seconds`, from 0 to 1
  int cores = 0;            // that this program may use there, all its ranks together
  int threads = 0;          // with which it computes there
  double seconds = 0;       // for which the counters were read

  // Of the cores that our threads want, the share that others left too little for: with 2 threads on 2 cores
  // that is others_share; with 8 threads on 16 cores it is above 0 once others use more than 8 of them.
  double missing_share() const;
  // From here on measured times mean little.
  static constexpr double kBusy = 0.1;
  bool busy() const { return missing_share() >= kBusy; }
};

// What one rank has read over the same time as the others.
struct LoadReading {
  char host[256] = {};
  bool known = false;
  double seconds = 0;
  double used = 0;  // processor seconds of `cores`, by all programs
  double own = 0;   // processor seconds of this rank, on all of its threads
  int cores = 0;    // of all ranks on this host
  int threads = 0;  // of this rank
};

// Of the host whose threads missed most. Nothing where a rank has read nothing, where the time was too short
// for the kernel's counters (10 ms each), or where these do not count what we have used ourselves.
std::optional<MachineLoad> busiest_load(std::span<const LoadReading> readings);

// Processor seconds that `cores` have worked, of a /proc/stat. Nothing where it lacks one of them.
std::optional<double> parse_used_seconds(std::string_view proc_stat, const std::set<int>& cores,
                                         double ticks_per_second);

// Measures from its construction on. Both calls are made by all ranks.
class LoadMeter {
 public:
  // `threads`: with which this rank computes.
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
  std::set<int> cores_;  // of all ranks on this host; empty where they are not known
  Counters begin_;
};

// "the machine was busy: …", one line without its end; empty where it was not, or where nothing is known.
std::string busy_line(const std::optional<MachineLoad>& load);
// The field "busy" of what is measured: null where nothing is known.
Json busy_json(const std::optional<MachineLoad>& load);

}  // namespace stagegpt
