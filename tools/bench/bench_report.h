// What stageN_bench prints.
#pragma once

#include <string>

#include "common/base/json_fwd.h"
#include "tools/bench/bench.h"

namespace stagegpt {

// What was measured, and where.
struct BenchSubject {
  std::string model;
  std::string machine;  // one line for the reader
  std::int64_t parameters = 0;
  std::int64_t batch_size = 0, seq_len = 0;
  std::int64_t tokens = 0;  // of a step, over all ranks
  int ranks = 1;
  int tensor_ranks = 1, stages = 1;  // of these ranks, those that hold one model
  int threads = 1;                   // of each rank
  Recompute recompute = Recompute::none;
  // What is computed again does not count.
  double flops = 0, flops_causal = 0;  // of a step, over all ranks: 6N + 12LCT and 6N + 6LCT a token
};

Json bench_json(const BenchSubject& subject, const BenchReport& report);
// Prints the same as a table.
void print_bench_table(const BenchSubject& subject, const BenchReport& report);

}  // namespace stagegpt
