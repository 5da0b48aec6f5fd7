// A ladder: one computation written several times, from the plain to the fast, each rung checked before it is
// timed.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/measure/peak.h"
#include "stage2_cuda/runtime.h"

namespace stagegpt::gpu {

struct Rung {
  std::string name;
  std::function<void(StreamHandle)> run;
};

struct Ladder {
  std::string name;  // "matmul (64,48) · (48,80)"
  std::vector<Rung> rungs;
  std::function<void()> clear;  // of what a rung has left
  // Of what it has left: norm-wise, relative to a result in f64; of several outputs the greatest.
  std::function<double()> error;
  double tolerance = 0;
  double work = 0;   // of one run: bytes or FLOP
  std::string unit;  // "GB/s" or "GFLOP/s"
  double bound = 0;  // the most work a second that this machine can do
  std::string bound_name;
};

struct RungReport {
  std::string name;
  double error = 0;
  double microseconds = 0;  // median
  double rate = 0;          // work a second
  double share = 0;         // of the bound
};

// Runs a computation some times, and returns the median of its microseconds, by events of the stream.
double median_microseconds(const std::function<void(StreamHandle)>& run, StreamHandle stream);

// Checks and times every rung. Throws std::runtime_error, naming the rung, where one computes something else.
std::vector<RungReport> climb(const Ladder& ladder);

// A table, or one JSON object, on standard output.
void print(const Ladder& ladder, const std::vector<RungReport>& reports, const std::string& machine,
           bool json);

}  // namespace stagegpt::gpu
