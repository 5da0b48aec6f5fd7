// The report of the benchmark, for made-up measurements.
#include "tools/bench/bench_report.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <nlohmann/json.hpp>

namespace stagegpt::test {
namespace {

Samples samples(std::initializer_list<double> times) {
  Samples all;
  for (const double ms : times) all.add(ms);
  return all;
}

// Steps of 400 ms, on two ranks.
const BenchSubject kSubject{.model = "nano",
                            .machine = "a machine",
                            .parameters = 7,
                            .batch_size = 2,
                            .seq_len = 16,
                            .tokens = 32,
                            .ranks = 2,
                            .tensor_ranks = 2,
                            .threads = 3,
                            .recompute = Recompute::block,
                            .flops = 12e9,
                            .flops_causal = 8e9};

BenchReport made_report() {
  BenchReport report;
  report.step_ms = samples({500, 400, 100});
  report.products_ms = samples({200, 220, 210});
  report.adamw_ms = samples({90, 80, 100});
  report.phases = {
      .data = 0.012, .forward = 0.1, .backward = 0.25, .communication = 0.03, .optimizer = 0.008};
  report.kernels = {{"linear_forward", 13, 0.3, {6e9, 3e9}}, {"copy", 2, 0.1, {0, 4e9}}};
  report.peak = {25e9, "measured GEMM 2048"};
  report.reduction_ms = samples({40, 20, 30});
  report.bytes_reduced = 5 << 19;
  report.peak_bytes = 3 << 19;
  report.rank_peak_bytes = {1 << 19, 3 << 19};
  report.first_loss = 4.5, report.first_grad_norm = 2.25;
  report.last_loss = 3.5, report.last_grad_norm = 1.25;
  report.load = {.others_share = 0.125, .cores = 4, .threads = 4};
  return report;
}

TEST(BenchJson, has_each_figure_once) {
  BenchReport report = made_report();
  // Numbers that floating point represents exactly.
  report.phases = {.data = 0.5, .forward = 1, .backward = 1.5, .communication = 2, .optimizer = 2.5};
  // On this machine, the first op is bound by its multiply-adds, the second by its bytes.
  report.kernels = {{"linear_forward", 13, 1.5, {24e9, 3e9}}, {"copy", 2, 0.5, {4e9, 3e9}}};
  report.peak.flops_per_second = 20e9;
  report.machine = PeakRates{.flops_per_second = 32e9, .bytes_per_second = 12e9};
  report.load.reset();
  EXPECT_EQ(bench_json(kSubject, report).dump(2), R"({
  "model": "nano",
  "parameters": 7,
  "batch_size": 2,
  "seq_len": 16,
  "ranks": 2,
  "tensor_parallel": 2,
  "pipeline_parallel": 1,
  "threads": 3,
  "recompute": "block",
  "tokens_per_second": 80.0,
  "ms_per_step": {
    "median": 400.0,
    "min": 100.0,
    "max": 500.0
  },
  "phases_ms": {
    "data": 500.0,
    "forward": 1000.0,
    "backward": 1500.0,
    "communication": 2000.0,
    "optimizer": 2500.0
  },
  "reduction_ms": 30.0,
  "bytes_reduced": 2621440,
  "first_step": {
    "loss": 4.5,
    "grad_norm": 2.25
  },
  "last_step": {
    "loss": 3.5,
    "grad_norm": 1.25
  },
  "gemm_bound_ms": 300.0,
  "efficiency": 0.75,
  "gflops": 20.0,
  "mfu": 0.75,
  "mfu_causal": 0.5,
  "peak_gflops": 40.0,
  "peak": "measured GEMM 2048",
  "machine": {
    "multiply_add_gflops": 64.0,
    "share_of_multiply_adds": 0.3125,
    "read_gbytes_per_second": 24.0
  },
  "kernels": [
    {
      "name": "linear_forward",
      "ms": 1500.0,
      "share": 0.75,
      "calls": 13,
      "gflops": 16.0,
      "gbytes_per_second": 2.0,
      "bound": 0.5
    },
    {
      "name": "copy",
      "ms": 500.0,
      "share": 0.25,
      "calls": 2,
      "gflops": 8.0,
      "gbytes_per_second": 6.0,
      "bound": 0.5
    }
  ],
  "peak_memory_bytes": 1572864,
  "rank_peak_memory_bytes": [
    524288,
    1572864
  ],
  "device_work": null,
  "busy": null
})");
}

TEST(BenchJson, tells_what_a_step_asks_of_a_device) {
  BenchReport report = made_report();
  report.device_work = {.kernels = 5,
                        .products = 30,
                        .fills = 200,
                        .copies = 7,
                        .allocations = 11,
                        .waits = 13,
                        .graphs = 2,
                        .in_graphs = 230};
  EXPECT_EQ(bench_json(kSubject, report)["device_work"].dump(),
            R"({"launches":235,"kernels":5,"products":30,"fills":200,"copies":7,"allocations":11,"waits":13,)"
            R"("graphs":2,"in_graphs":230})");
}

// The printed table: the values of the JSON report, and values that only the table has.
std::string printed(const BenchReport& report) {
  testing::internal::CaptureStdout();
  print_bench_table(kSubject, report);
  std::fflush(stdout);
  return testing::internal::GetCapturedStdout();
}

TEST(BenchTable, has_a_line_for_each_figure) {
  EXPECT_EQ(printed(made_report()),
            R"(nano, 7 parameters, 32 tokens a step in sequences of 16
a machine

step            400.00 ms   median of 3; quartiles 250.00 and 450.00, least 100.00, most 500.00
speed               80 tokens/s
bound           300.00 ms   matrix products of linear layers and head 210.00, AdamW 90.00
efficiency        75.0 %    bound / step
MFU, 6N+12LCT     60.0 %    of 50.0 GFLOP/s, measured GEMM 2048
MFU, 6N+6LCT      40.0 %    causal: 20.0 GFLOP/s
memory             1.5 MiB  most in use during a step, with --recompute block
reductions       30.00 ms   from the first to the last, of 2.5 MiB of gradients of a rank
others            12.5 %    of 4 cores, used by other programs meanwhile: the figures may be off

phase                         median ms   share
data                             12.000    3.0%
forward                         100.000   25.0%
backward                        250.000   62.5%
communication                    30.000    7.5%
optimizer                         8.000    2.0%

op                            median ms   share   calls   GFLOP/s      GB/s
linear_forward                  300.000   75.0%      13      20.0      10.0
copy                            100.000   25.0%       2       0.0      40.0
)");
}

// Two ranks: 64 GFLOP/s, 20 GB/s. 6 GFLOP of one rank take at least 6/32 s; 4 GB take at least 0.4 s, in a
// fourth of which they were copied: within a cache.
TEST(BenchTable, compares_with_the_rates_of_the_machine) {
  BenchReport report = made_report();
  report.machine = PeakRates{.flops_per_second = 32e9, .bytes_per_second = 10e9};
  const std::string text = printed(report);
  EXPECT_NE(
      text.find(
          "\nmultiply-adds     31.2 %    of 64.0 GFLOP/s on registers alone; memory is read at 20.0 GB/s\n"),
      std::string::npos)
      << text;
  EXPECT_NE(text.find("GFLOP/s      GB/s   bound\n"), std::string::npos) << text;
  EXPECT_NE(text.find("20.0      10.0  100.0%\n"), std::string::npos) << text;
  EXPECT_NE(text.find("0.0      40.0  400.0%\n"), std::string::npos) << text;
  EXPECT_EQ(bench_json(kSubject, made_report())["machine"], nullptr);
  EXPECT_EQ(bench_json(kSubject, made_report())["kernels"][0]["bound"], nullptr);
}

TEST(BenchTable, separates_thousands) {
  BenchSubject subject = kSubject;
  subject.parameters = 124'439'808;
  subject.tokens = 524'288;
  subject.flops = 1'200e9;
  BenchReport report = made_report();
  report.peak.flops_per_second = 1e15;
  report.peak_bytes = std::size_t{3} << 30;
  report.kernels = {{"linear_forward", 13, 0.3, {6e12, 3e12}}};
  testing::internal::CaptureStdout();
  print_bench_table(subject, report);
  std::fflush(stdout);
  const std::string text = testing::internal::GetCapturedStdout();
  for (const char* part :
       {"nano, 124,439,808 parameters, 524,288 tokens a step", "speed        1,310,720 tokens/s\n",
        " of 2,000,000.0 GFLOP/s, ", "memory         3,072.0 MiB", "  20,000.0  10,000.0\n"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in\n" << text;
  }
}

TEST(BenchTable, tells_what_a_step_asks_of_a_device) {
  BenchReport report = made_report();
  EXPECT_EQ(printed(report).find("launches"), std::string::npos);
  report.device_work = {
      .kernels = 5, .products = 30, .fills = 200, .copies = 7, .allocations = 11, .waits = 13};
  EXPECT_NE(printed(report).find(R"(
launches           235      in a step: 5 kernels, 30 products of the library, 200 fills; 7 copies
waits               13      of the host for the device in a step; 11 allocations of device memory
others )"),
            std::string::npos)
      << printed(report);
  report.device_work->graphs = 2;
  report.device_work->in_graphs = 230;
  EXPECT_NE(printed(report).find(R"(
graphs               2      launched in a step, with 230 of these launches in them; backward contains forward
waits )"),
            std::string::npos)
      << printed(report);
}

TEST(BenchTable, tells_of_other_programs_where_they_are_known) {
  BenchReport report = made_report();
  report.load = {.others_share = 0.0625, .cores = 4, .threads = 4};
  EXPECT_NE(
      printed(report).find("\nothers             6.2 %    of 4 cores, used by other programs meanwhile\n"),
      std::string::npos);
  report.load.reset();
  EXPECT_EQ(printed(report).find("others"), std::string::npos);
}

}  // namespace
}  // namespace stagegpt::test
