// Timing the writing of text: one token at a time, next to the machine's memory, which bounds it.
#pragma once

#include <cstdint>
#include <vector>

#include "common/model/gpt2.h"

namespace stagegpt {

struct DecodeBenchConfig {
  std::int64_t tokens = 64;     // timed
  std::int64_t warmup = 8;      // not timed
  DType matrices = DType::f32;  // what the model reads its matrices in
};

struct DecodeReport {
  std::vector<double> token_ms;  // sorted
  double bytes_per_token = 0;    // weights once, and the keys and values of the tokens before, on average
  double memory_bytes_per_second = 0;  // median of read passes over a large tensor, between the tokens

  double median_ms() const;
  double bytes_per_second() const { return 1e3 * bytes_per_token / median_ms(); }
};

DecodeReport bench_decoding(Backend& backend, const Gpt2& model, const DecodeBenchConfig& config);

}  // namespace stagegpt
