#include "common/measure/machine_load.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <map>
#include <sstream>
#include <vector>

#include "common/base/json.h"
#include "common/comm/agreement.h"
#include "common/system/system_files.h"

namespace stagegpt {
namespace {

// The host of a rank, and the cores that it may use.
struct Place {
  char host[sizeof LoadReading::host] = {};
  cpu_set_t cores;
  bool known = false;  // false if there are more cores than cpu_set_t holds
};

Place own_place() {
  Place place;
  gethostname(place.host, sizeof place.host - 1);
  CPU_ZERO(&place.cores);
  place.known = sched_getaffinity(0, sizeof place.cores, &place.cores) == 0;
  return place;
}

// The cores that the ranks on this host may use; empty if those of one rank are unknown.
std::set<int> cores_of_host(RankGroup& group) {
  const std::vector<Place> places = gather(group, own_place());
  const std::string_view host = places[static_cast<std::size_t>(group.rank())].host;
  std::set<int> cores;
  for (const Place& place : places) {
    if (place.host != host) continue;
    if (!place.known) return {};
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(core, &place.cores)) cores.insert(core);
    }
  }
  return cores;
}

// Processor time of this process and of its terminated children.
double own_processor_seconds() {
  double seconds = 0;
  for (const int who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage usage{};
    getrusage(who, &usage);
    for (const timeval& time : {usage.ru_utime, usage.ru_stime})
      seconds += static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  }
  return seconds;
}

// Combines the readings of a host's ranks; `used` and `cores` are the same in all of them.
MachineLoad load_of_host(std::span<const LoadReading* const> readings) {
  const LoadReading& first = *readings.front();
  MachineLoad load{.host = first.host, .cores = first.cores, .seconds = first.seconds};
  double own = 0;
  for (const LoadReading* reading : readings) {
    own += reading->own;
    load.threads += reading->threads;
  }
  load.others_share = std::clamp((first.used - own) / (load.cores * load.seconds), 0.0, 1.0);
  return load;
}

bool is_sound(const LoadReading& reading) {
  constexpr double kLongEnough = 0.5;
  return reading.known && reading.cores > 0 && reading.seconds >= kLongEnough &&
         reading.used >= reading.own / 2;  // else /proc/stat does not count our time
}

std::string percent(double share) { return concat(std::lround(100 * share), " %"); }

}  // namespace

double MachineLoad::missing_share() const {
  const double wanted = std::min(threads, cores), left = cores * (1 - others_share);
  return wanted > 0 ? std::max(0.0, (wanted - left) / wanted) : 0;
}

std::optional<MachineLoad> busiest_load(std::span<const LoadReading> readings) {
  std::map<std::string_view, std::vector<const LoadReading*>> hosts;
  for (const LoadReading& reading : readings) {
    if (!is_sound(reading)) return std::nullopt;
    hosts[reading.host].push_back(&reading);
  }
  std::optional<MachineLoad> busiest;
  for (const auto& [host, of_host] : hosts) {
    const MachineLoad load = load_of_host(of_host);
    if (!busiest || load.missing_share() > busiest->missing_share()) busiest = load;
  }
  if (busiest && hosts.size() == 1) busiest->host.clear();
  return busiest;
}

std::optional<double> parse_used_seconds(std::string_view proc_stat, const std::set<int>& cores,
                                         double ticks_per_second) {
  std::istringstream lines{std::string(proc_stat)};
  std::set<int> missing = cores;
  double ticks = 0;
  for (std::string line; std::getline(lines, line);) {
    int core = 0;
    std::array<double, 8> of{};  // user, nice, system, idle, iowait, irq, softirq, steal
    std::istringstream words(line);
    if (!line.starts_with("cpu") || !words.ignore(3) || !(words >> core) || !missing.contains(core)) continue;
    for (double& value : of) words >> value;
    if (!words) continue;
    missing.erase(core);
    ticks += of[0] + of[1] + of[2] + of[5] + of[6] + of[7];
  }
  if (cores.empty() || !missing.empty()) return std::nullopt;
  return ticks / ticks_per_second;
}

LoadMeter::LoadMeter(RankGroup& group, int threads)
    : group_(group), threads_(threads), cores_(cores_of_host(group)) {
  const std::optional<double> quota = cpu_quota();
  if (quota && *quota < static_cast<double>(cores_.size())) cores_.clear();
  begin_ = counters();
}

LoadMeter::Counters LoadMeter::counters() const {
  const std::optional<double> used =
      parse_used_seconds(system_file("/proc/stat"), cores_, static_cast<double>(sysconf(_SC_CLK_TCK)));
  const std::chrono::duration<double> now = std::chrono::steady_clock::now().time_since_epoch();
  return {.seconds = now.count(),
          .used = used.value_or(0),
          .own = own_processor_seconds(),
          .known = used.has_value()};
}

std::optional<MachineLoad> LoadMeter::read() const {
  const Counters end = counters();
  LoadReading reading{.known = begin_.known && end.known,
                      .seconds = end.seconds - begin_.seconds,
                      .used = end.used - begin_.used,
                      .own = end.own - begin_.own,
                      .cores = static_cast<int>(cores_.size()),
                      .threads = threads_};
  gethostname(reading.host, sizeof reading.host - 1);
  return busiest_load(gather(group_, reading));
}

std::string busy_line(const std::optional<MachineLoad>& load) {
  if (!load || !load->busy()) return "";
  return concat(load->host.empty() ? "the machine" : load->host, " was busy: other programs used ",
                percent(load->others_share), " of ", load->cores, load->cores == 1 ? " core" : " cores",
                " during the measurement, which used ", load->threads,
                load->threads == 1 ? " thread" : " threads", "; the figures may be off");
}

Json busy_json(const std::optional<MachineLoad>& load) {
  if (!load) return nullptr;
  return {{"is_busy", load->busy()},       {"others_share", load->others_share},
          {"of_cores", load->cores},       {"threads", load->threads},
          {"over_seconds", load->seconds}, {"host", load->host.empty() ? Json() : Json(load->host)}};
}

}  // namespace stagegpt
