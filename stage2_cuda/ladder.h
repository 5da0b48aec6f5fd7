// A ladder: several versions of one kernel, from the simplest to the fastest. Each version is checked
// before it is timed.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/measure/machine_load.h"
#include "common/measure/peak.h"
#include "common/measure/step_times.h"
#include "stage2_cuda/runtime.h"

namespace stagegpt::gpu {

struct KernelVersion {
  std::string name;
  std::function<void(StreamHandle)> run;
};

struct Ladder {
  std::string name;  // "matmul (64,48) · (48,80)"
  std::vector<KernelVersion> versions;
  std::function<void()> clear;  // fills the outputs with NaN
  // Norm-wise relative error of the outputs, against a reference in f64; the maximum over several outputs.
  std::function<double()> error;
  double tolerance = 0;
  double work = 0;   // bytes or FLOP of one run
  std::string unit;  // "GB/s" or "GFLOP/s"
  double bound = 0;  // the machine's peak: work per second
  std::string bound_name;
};

struct VersionReport {
  std::string name;
  double error = 0;
  double microseconds = 0;  // median
  double rate = 0;          // work per second
  double share = 0;         // rate / bound
};

// Times of a computation, as many as its median needs: from 5 to 50, and no more after a second of them.
Samples enough_samples(const std::function<double()>& milliseconds);

// Runs a kernel several times; returns the median time in microseconds, measured by events of the stream.
double median_microseconds(const std::function<void(StreamHandle)>& run, StreamHandle stream);

// Checks and times every version. Throws std::runtime_error if the error of one exceeds the tolerance.
std::vector<VersionReport> check_and_time(const Ladder& ladder);

// Where a ladder was timed, and what other programs used of the processors meanwhile.
struct LadderMachine {
  std::string description;
  std::optional<MachineLoad> load = {};
};

// Prints a table, or one JSON object, to standard output.
void print(const Ladder& ladder, const std::vector<VersionReport>& reports, const LadderMachine& machine,
           bool json);

}  // namespace stagegpt::gpu
