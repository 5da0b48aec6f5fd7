// The report of the decoding benchmark, for made-up measurements.
#include <gtest/gtest.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "tools/bench/decode_bench.h"

namespace stagegpt::test {
namespace {

const DecodeSubject kDecodeSubject{
    .model = "nano", .machine = "a machine", .weights = "bf16", .parameters = 7, .threads = 3};

// The median token takes 8 ms and reads 4 MB: 0.5 GB/s of the memory's 2 GB/s.
DecodeReport made_decode_report() {
  DecodeReport report;
  for (const double ms : {20.0, 8.0, 4.0}) report.token_ms.add(ms);
  report.peak_bytes = 3 << 19;
  report.bytes_per_token = 4e6;
  report.memory_bytes_per_second = 2e9;
  report.device_work = DeviceWork{.kernels = 88, .copies = 2, .waits = 1, .graphs = 1, .in_graphs = 88};
  return report;
}

TEST(DecodeReport, has_each_figure_once_as_json) {
  EXPECT_EQ(decode_json(kDecodeSubject, made_decode_report()).dump(2), R"({
  "model": "nano",
  "parameters": 7,
  "weights": "bf16",
  "threads": 3,
  "tokens_per_second": 125.0,
  "ms_per_token": {
    "median": 8.0,
    "min": 4.0,
    "max": 20.0
  },
  "bytes_per_token": 4000000.0,
  "gbytes_per_second": 0.5,
  "memory_gbytes_per_second": 2.0,
  "bandwidth_share": 0.25,
  "peak_memory_bytes": 1572864,
  "device_work": {
    "launches": 88,
    "kernels": 88,
    "products": 0,
    "fills": 0,
    "copies": 2,
    "allocations": 0,
    "waits": 1,
    "graphs": 1,
    "in_graphs": 88
  },
  "busy": null
})");
}

TEST(DecodeReport, has_them_in_a_table) {
  testing::internal::CaptureStdout();
  print_decode_table(kDecodeSubject, made_decode_report());
  std::fflush(stdout);
  EXPECT_EQ(testing::internal::GetCapturedStdout(), R"(nano, 7 parameters, matrices in bf16
a machine
token     8.00 ms (median of 3; 4.00 to 20.00), 125.0 tokens/s
reads     4.0 MB a token: 0.5 GB/s, 25 % of the 2.0 GB/s that memory gives
memory    1.5 MiB
launches            88      in a token: 88 kernels, 0 products of the library, 0 fills; 2 copies
graphs               1      launched in a token, with 88 of these launches in them
waits                1      of the host for the device in a token; 0 allocations of device memory
)");
}

}  // namespace
}  // namespace stagegpt::test
