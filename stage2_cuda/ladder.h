// A ladder: several versions of one kernel, from the simplest to the fastest. Each version is checked before
// and after it is timed, and timed with other inputs than those of the check.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/measure/machine_load.h"
#include "common/measure/step_times.h"
#include "common/profile/peak.h"
#include "stage2_cuda/runtime.h"

namespace stagegpt::gpu {

struct KernelVersion {
  std::string name;
  std::function<void(StreamHandle, int set)> run;
};

// A version always runs at least so often while it is timed.
inline constexpr int kFewestRuns = 8;

struct Ladder {
  std::string name;  // "matmul (64,48) · (48,80)"
  // The last one is the reference: the speed of the others is given as a share of its speed. It is timed
  // before and after them, so that its own share, which would be 1 without noise, shows how exact shares are.
  std::vector<KernelVersion> versions;
  // The tensors exist `sets` times, with different inputs. Set 0 is for the check before timing; the others
  // are timed in turns, so that a run finds none of its inputs in a cache, and are checked afterwards. At
  // least 2, at most 1 + kFewestRuns.
  int sets = 2;
  std::function<void()> clear;  // fills the outputs of all sets with NaN
  // Norm-wise relative error of a set's outputs, against a reference in f64; the maximum over several
  // outputs.
  std::function<double(int set)> error;
  double tolerance = 0;
  double work = 0;   // bytes or FLOP of one run
  std::string unit;  // "GB/s" or "GFLOP/s"
  double bound = 0;  // the machine's peak: work per second
  std::string bound_name;
};

struct VersionReport {
  std::string name;
  double error = 0;         // the greatest of all sets
  double microseconds = 0;  // median
  double rate = 0;          // work per second
  double share = 0;         // rate / bound
  double of_reference = 0;  // the reference's first time / this time
};

// Times of a computation, as many as its median needs: from 5 to 50, and no more after a second of them.
Samples enough_samples(const std::function<double()>& milliseconds);

// Runs a kernel several times; returns the median time in microseconds, measured by events of the stream.
double median_microseconds(const std::function<void(StreamHandle)>& run, StreamHandle stream);

// Checks and times every version. Throws std::runtime_error if an error exceeds the tolerance.
std::vector<VersionReport> check_and_time(const Ladder& ladder);

// Leaves one version, whose name begins with this word. Throws UserError if there is none.
void keep_version(Ladder& ladder, std::string_view word);

// Runs every version once, without times. Throws std::runtime_error if an error exceeds the tolerance. The
// outputs are not cleared before: that may be a kernel, and would be counted.
void run_once(const Ladder& ladder);

// Where a ladder was timed, and what other programs used of the processors meanwhile.
struct LadderMachine {
  std::string description;
  bool is_gpu = true;
  std::optional<MachineLoad> load = {};
};

// Prints a table, or one JSON object, to standard output.
void print(const Ladder& ladder, const std::vector<VersionReport>& reports, const LadderMachine& machine,
           bool json);

}  // namespace stagegpt::gpu
