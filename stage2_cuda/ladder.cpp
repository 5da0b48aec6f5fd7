#include "stage2_cuda/ladder.h"

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <stdexcept>

#include "common/base/error.h"
#include "common/base/json.h"
#include "stage2_cuda/device_objects.h"

namespace stagegpt::gpu {
namespace {

constexpr int kWarmup = 3;

// The error of a set's outputs, which must be at most the tolerance.
double checked_error(const Ladder& ladder, const KernelVersion& version, int set, const char* when) {
  const double error = ladder.error(set);
  if (error <= ladder.tolerance) return error;  // false for NaN
  throw std::runtime_error(concat("version ", version.name, when, ": expected an error of at most ",
                                  ladder.tolerance, ", got ", error));
}

VersionReport check_and_time(const Ladder& ladder, const KernelVersion& version, StreamHandle stream) {
  ladder.clear();
  version.run(stream, 0);
  synchronize(stream);
  VersionReport report{.name = version.name, .error = checked_error(ladder, version, 0, "")};
  int runs = 0;
  report.microseconds =
      median_microseconds([&](StreamHandle s) { version.run(s, 1 + runs++ % (ladder.sets - 1)); }, stream);
  for (int set = 1; set < ladder.sets; ++set) {
    report.error = std::max(report.error, checked_error(ladder, version, set, ", when it was timed"));
  }
  report.rate = ladder.work / (report.microseconds / 1e6);
  report.share = report.rate / ladder.bound;
  return report;
}

}  // namespace

Samples enough_samples(const std::function<double()>& milliseconds) {
  constexpr int kLeast = kFewestRuns - kWarmup, kMost = 50;
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
  check(ladder.sets >= 2 && ladder.sets <= 1 + kFewestRuns, "a ladder with ", ladder.sets,
        " sets of tensors");
  const Stream stream;
  const VersionReport reference = check_and_time(ladder, ladder.versions.back(), stream);
  std::vector<VersionReport> reports;
  for (const KernelVersion& version : ladder.versions) {
    reports.push_back(check_and_time(ladder, version, stream));
    reports.back().of_reference = reference.microseconds / reports.back().microseconds;
  }
  return reports;
}

void keep_version(Ladder& ladder, std::string_view word) {
  std::string known;
  for (const KernelVersion& version : ladder.versions) known += (known.empty() ? "" : ", ") + version.name;
  std::erase_if(ladder.versions, [&](const KernelVersion& version) {
    return std::string_view(version.name).substr(0, version.name.find(' ')) != word;
  });
  if (ladder.versions.empty())
    user_error("--ladder-version: no version \"", word, "\" (there are: ", known, ')');
}

void run_once(const Ladder& ladder) {
  const Stream stream;
  for (const KernelVersion& version : ladder.versions) {
    version.run(stream, 0);
    synchronize(stream);
    checked_error(ladder, version, 0, "");
  }
}

void print(const Ladder& ladder, const std::vector<VersionReport>& reports, const LadderMachine& machine,
           bool json) {
  if (json) {
    auto versions = Json::array();
    for (const auto& [name, error, microseconds, rate, share, of_reference] : reports) {
      versions.push_back({{"name", name},
                          {"error", error},
                          {"us", microseconds},
                          {"rate", rate / 1e9},
                          {"share", share},
                          {"of_reference", of_reference}});
    }
    const Json object = {{"ladder", ladder.name},
                         {"machine", machine.description},
                         {"on_gpu", machine.is_gpu},
                         {"unit", ladder.unit},
                         {"bound", ladder.bound / 1e9},
                         {"bound_name", ladder.bound_name},
                         {"reference", reports.back().name},
                         {"versions", versions},
                         {"busy", busy_json(machine.load)}};
    std::cout << json_text(object);
    return;
  }
  std::printf("%s\n%s\nbound: %.1f %s, %s\nreference: %s, timed twice\n", ladder.name.c_str(),
              machine.description.c_str(), ladder.bound / 1e9, ladder.unit.c_str(), ladder.bound_name.c_str(),
              reports.back().name.c_str());
  if (!machine.is_gpu) std::puts("These are times of the emulator. They say nothing about a GPU.");
  std::printf("\n%-20s %10s %12s %10s %9s %13s\n", "version", "error", "median us", ladder.unit.c_str(),
              "of bound", "of reference");
  for (const auto& [name, error, microseconds, rate, share, of_reference] : reports) {
    std::printf("%-20s %10.2g %12.2f %10.1f %8.1f%% %12.1f%%\n", name.c_str(), error, microseconds,
                rate / 1e9, 100 * share, 100 * of_reference);
  }
}

}  // namespace stagegpt::gpu
