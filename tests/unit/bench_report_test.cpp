// What the benchmark makes of its measurements, on numbers made by hand.
#include "common/app/bench_report.h"

#include <gtest/gtest.h>

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
                            .threads = 3,
                            .flops = 12e9,
                            .flops_causal = 8e9};

BenchReport made_report() {
  BenchReport report;
  report.step_ms = samples({500, 400, 100});
  report.products_ms = samples({200, 220, 210});
  report.adamw_ms = samples({90, 80, 100});
  report.phases.backward = 0.25;
  report.kernels = {{"linear_forward", 13, 0.3, {6e9, 3e9}}, {"copy", 2, 0.1, {0, 4e9}}};
  report.peak = {25e9, "measured GEMM 2048"};
  report.peak_bytes = 1000;
  return report;
}

TEST(BenchJson, efficiency_is_the_bound_by_the_step) {
  const auto json = bench_json(kSubject, made_report());
  EXPECT_EQ(json["ms_per_step"]["median"], 400);
  EXPECT_EQ(json["ms_per_step"]["min"], 100);
  EXPECT_EQ(json["ms_per_step"]["max"], 500);
  EXPECT_EQ(json["phases_ms"]["backward"], 250);
  EXPECT_EQ(json["tokens_per_second"], 80);
  EXPECT_EQ(json["gemm_bound_ms"], 210 + 90);
  EXPECT_EQ(json["efficiency"], 0.75);
}

TEST(BenchJson, mfu_is_by_the_peak_of_all_ranks) {
  const auto json = bench_json(kSubject, made_report());
  EXPECT_DOUBLE_EQ(json["gflops"], 20);
  EXPECT_DOUBLE_EQ(json["peak_gflops"], 50);
  EXPECT_EQ(json["peak"], "measured GEMM 2048");
  EXPECT_DOUBLE_EQ(json["mfu"], 0.6);
  EXPECT_DOUBLE_EQ(json["mfu_causal"], 0.4);
}

TEST(BenchJson, a_named_peak_is_told_by_its_name) {
  BenchReport report = made_report();
  report.peak = {40e9, "a device, TF32, data sheet"};
  const auto json = bench_json(kSubject, report);
  EXPECT_EQ(json["peak"], "a device, TF32, data sheet");
  EXPECT_DOUBLE_EQ(json["peak_gflops"], 80);
  EXPECT_DOUBLE_EQ(json["mfu_causal"], 0.25);
}

TEST(BenchJson, ops_have_rates) {
  const auto kernels = bench_json(kSubject, made_report())["kernels"];
  ASSERT_EQ(kernels.size(), 2u);
  EXPECT_EQ(kernels[0]["name"], "linear_forward");
  EXPECT_EQ(kernels[0]["calls"], 13);
  EXPECT_DOUBLE_EQ(kernels[0]["ms"], 300);
  EXPECT_DOUBLE_EQ(kernels[0]["share"], 0.75);
  EXPECT_DOUBLE_EQ(kernels[0]["gflops"], 20);
  EXPECT_DOUBLE_EQ(kernels[0]["gbytes_per_second"], 10);
  EXPECT_EQ(kernels[1]["gflops"], 0);
}

}  // namespace
}  // namespace stagegpt::test
