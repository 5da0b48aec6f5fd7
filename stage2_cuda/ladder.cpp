#include "stage2_cuda/ladder.h"

#include <chrono>
#include <cstdio>
#include <iostream>
#include <stdexcept>

#include "common/base/error.h"
#include "common/base/json.h"
#include "stage2_cuda/device_objects.h"

namespace stagegpt::gpu {
namespace {

void require_right(const KernelVersion& version, double error, double tolerance) {
  if (error <= tolerance) return;  // false for NaN
  throw std::runtime_error(
      concat("version ", version.name, ": expected an error of at most ", tolerance, ", got ", error));
}

VersionReport check_and_time(const Ladder& ladder, const KernelVersion& version, StreamHandle stream) {
  ladder.clear();
  version.run(stream);
  synchronize(stream);
  VersionReport report{.name = version.name, .error = ladder.error()};
  require_right(version, report.error, ladder.tolerance);
  report.microseconds = median_microseconds(version.run, stream);
  report.rate = ladder.work / (report.microseconds / 1e6);
  report.share = report.rate / ladder.bound;
  return report;
}

}  // namespace

Samples enough_samples(const std::function<double()>& milliseconds) {
  constexpr int kLeast = 5, kMost = 50;
  constexpr double kEnough = 1000;
  Samples ms;
  double total = 0;
  while (ms.size() < kLeast || (ms.size() < kMost && total < kEnough)) {
    const double sample = milliseconds();
    ms.add(sample);
    total += sample;
  }
  return ms;
}

double median_microseconds(const std::function<void(StreamHandle)>& run, StreamHandle stream) {
  constexpr int kWarmup = 3;
  const Event begin(EventKind::time), end(EventKind::time);
  for (int i = 0; i < kWarmup; ++i) run(stream);
  const Samples ms = enough_samples([&] {
    record(begin, stream);
    run(stream);
    record(end, stream);
    wait_for(end);
    return milliseconds_between(begin, end);
  });
  return 1e3 * ms.median();
}

std::vector<VersionReport> check_and_time(const Ladder& ladder) {
  const Stream stream;
  std::vector<VersionReport> reports;
  for (const KernelVersion& version : ladder.versions)
    reports.push_back(check_and_time(ladder, version, stream));
  return reports;
}

void print(const Ladder& ladder, const std::vector<VersionReport>& reports, const LadderMachine& machine,
           bool json) {
  if (json) {
    auto versions = Json::array();
    for (const auto& [name, error, microseconds, rate, share] : reports) {
      versions.push_back(
          {{"name", name}, {"error", error}, {"us", microseconds}, {"rate", rate / 1e9}, {"share", share}});
    }
    const Json object = {
        {"ladder", ladder.name},          {"machine", machine.description},  {"unit", ladder.unit},
        {"bound", ladder.bound / 1e9},    {"bound_name", ladder.bound_name}, {"versions", versions},
        {"busy", busy_json(machine.load)}};
    std::cout << object.dump(2) << '\n';
    return;
  }
  std::printf("%s\n%s\nbound: %.1f %s, %s\n\n", ladder.name.c_str(), machine.description.c_str(),
              ladder.bound / 1e9, ladder.unit.c_str(), ladder.bound_name.c_str());
  std::printf("%-18s %10s %12s %10s %9s\n", "version", "error", "median us", ladder.unit.c_str(), "of bound");
  for (const auto& [name, error, microseconds, rate, share] : reports) {
    std::printf("%-18s %10.2g %12.2f %10.1f %8.1f%%\n", name.c_str(), error, microseconds, rate / 1e9,
                100 * share);
  }
}

}  // namespace stagegpt::gpu
