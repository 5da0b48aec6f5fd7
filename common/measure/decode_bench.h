// Timing the writing of text: one token at a time, next to the machine's memory, which bounds it.
#pragma once

#include <cstdint>

#include "common/measure/bench.h"

namespace stagegpt {

struct DecodeBenchConfig {
  std::int64_t tokens = 64;     // timed
  std::int64_t warmup = 8;      // not timed
  DType matrices = DType::f32;  // what the model reads its matrices in
};

struct DecodeReport {
  Samples token_ms;
  std::size_t peak_bytes = 0;       // most memory in use, but for what memory itself is measured with
  double bytes_per_token = 0;       // weights once, and the keys and values of the tokens before, on average
  std::optional<MachineLoad> load;  // of the host that was the busiest
  double memory_bytes_per_second = 0;  // median of read passes over a large tensor, between the tokens

  double bytes_per_second() const { return 1e3 * bytes_per_token / token_ms.median(); }
  // Of what memory gives.
  double bandwidth_share() const { return bytes_per_second() / memory_bytes_per_second; }
};

// Greedy, from an empty context, which is emptied whenever it is full.
DecodeReport bench_decoding(Backend& backend, const Gpt2& model, const DecodeBenchConfig& config,
                            const BenchProgress& progress);

}  // namespace stagegpt
