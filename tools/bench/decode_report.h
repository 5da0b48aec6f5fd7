// What stageN_bench --generate prints.
#pragma once

#include <string>

#include "common/base/json_fwd.h"
#include "tools/bench/decode_bench.h"

namespace stagegpt {

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
