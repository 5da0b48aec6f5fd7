// Times decoding, one token at a time, and compares it with the memory bandwidth, which bounds it.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/json_fwd.h"
#include "tools/bench/bench.h"

namespace stagegpt {

struct DecodeBenchConfig {
  std::int64_t tokens = 64;    // timed
  std::int64_t warmup = 8;     // not timed
  Profile* profile = nullptr;  // of timed tokens
};

struct DecodeReport {
  Samples token_ms;
  std::size_t peak_bytes = 0;       // peak memory, without the tensor that measures the memory bandwidth
  double bytes_per_token = 0;       // mean bytes read: all weights, and keys and values of earlier tokens
  std::optional<MachineLoad> load;  // of the busiest host
  std::optional<DeviceWork> device_work;  // in the last timed token
  double memory_bytes_per_second = 0;     // median over reads of a large tensor, between tokens

  double bytes_per_second() const { return 1e3 * bytes_per_token / token_ms.median(); }
  // Share of the memory bandwidth.
  double bandwidth_share() const { return bytes_per_second() / memory_bytes_per_second; }
};

// Decodes greedily, from an empty context; a full context is cleared.
DecodeReport bench_decoding(Backend& backend, const LanguageModel& model, const DecodeBenchConfig& config,
                            const BenchProgress& progress);

// What was measured, and where.
struct DecodeSubject {
  std::string model, machine, weights;
  std::int64_t parameters = 0;
  int threads = 1;
};

Json decode_json(const DecodeSubject& subject, const DecodeReport& report);
// Prints the same as a table.
void print_decode_table(const DecodeSubject& subject, const DecodeReport& report);

}  // namespace stagegpt
